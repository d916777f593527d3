"""openstacksdk against a local stack: the life of a load balancer, with the SDK's own waiting and paging."""

import sys

import openstack


def main(endpoint: str, member: str) -> None:
    conn = openstack.connect(auth_type="none", endpoint=endpoint)
    lbs = conn.load_balancer
    subnet = conn.network.find_subnet("public-v4", ignore_missing=False)
    servers = conn.network.find_subnet("servers-v4", ignore_missing=False)

    lb = lbs.create_load_balancer(name="sdk", vip_subnet_id=subnet.id)
    assert lb.vip_address and lb.vip_port_id, lb
    lb = lbs.wait_for_load_balancer(lb.id, interval=0.3, wait=60)
    assert lbs.find_load_balancer("sdk").id == lb.id
    assert lbs.find_load_balancer("absent") is None

    def settle() -> None:
        lbs.wait_for_load_balancer(lb.id, interval=0.3, wait=60)

    listener = lbs.create_listener(
        name="sdk-listener", load_balancer_id=lb.id, protocol="HTTP", protocol_port=80
    )
    settle()
    pool = lbs.create_pool(
        name="sdk-pool", listener_id=listener.id, protocol="HTTP", lb_algorithm="ROUND_ROBIN"
    )
    settle()
    first = lbs.create_member(
        pool, name="first", address=member, protocol_port=80, subnet_id=servers.id
    )
    settle()
    monitor = lbs.create_health_monitor(
        pool_id=pool.id, type="HTTP", delay=1, timeout=1, max_retries=1
    )
    settle()
    lbs.update_member(first, pool, weight=7)
    settle()
    assert lbs.get_member(first, pool).weight == 7
    assert lbs.get_health_monitor(monitor).type == "HTTP"

    for number in range(3):
        lbs.create_listener(
            name=f"page-{number}", load_balancer_id=lb.id, protocol="TCP", protocol_port=7000 + number
        )
        settle()
    paged = list(lbs.listeners(limit=1, load_balancer_id=lb.id))
    assert len(paged) == 4, paged

    stats = lbs.get_load_balancer_statistics(lb.id)
    assert stats.total_connections == 0, stats
    assert [provider.name for provider in lbs.providers()][0] == "amphora"

    before = [a.id for a in lbs.amphorae(loadbalancer_id=lb.id)]
    lbs.failover_load_balancer(lb.id)
    settle()
    allocated = [a for a in lbs.amphorae(loadbalancer_id=lb.id) if a.status == "ALLOCATED"]
    assert len(allocated) == 1 and allocated[0].id not in before, (before, allocated)

    lbs.delete_load_balancer(lb.id, cascade=True)
    openstack.resource.wait_for_delete(lbs, lb, interval=0.3, wait=60)
    assert lbs.find_load_balancer("sdk") is None
    print("sdk: all good")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
