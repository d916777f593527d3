"""openstacksdk with real tokens: a tenant's load balancer from its creation to its end, and what other users may not do."""

import sys

import openstack
from openstack.exceptions import ForbiddenException, NotFoundException


def connect(auth_url: str, region: str, user: str, project: str, password: str):
    conn = openstack.connect(
        auth_url=auth_url,
        region_name=region,
        username=user,
        project_name=project,
        password=password,
        user_domain_name="Default",
        project_domain_name="Default",
    )
    return conn.load_balancer


def refused(who: str, call, *args, **kwargs) -> None:
    """403, in the words of Octavia."""
    try:
        answer = call(*args, **kwargs)
        # Lists ask when they are read.
        answer = list(answer) if hasattr(answer, "__next__") else answer
    except ForbiddenException as error:
        fault = error.response.json()
        assert error.response.status_code == 403, error.response
        assert set(fault) == {"faultcode", "faultstring", "debuginfo"}, fault
        assert fault["faultcode"] == "Client", fault
        assert fault["faultstring"].startswith("Policy does not allow this request"), fault
        return
    raise AssertionError(f"{call.__name__} {args} {kwargs} by {who}: {answer}")


def live(lbs, subnet: str) -> dict:
    """A load balancer with one of everything."""
    lb = lbs.create_load_balancer(name="sdk", vip_subnet_id=subnet, tags=["sdk"])

    def settle():
        return lbs.wait_for_load_balancer(lb.id, interval=0.05, wait=60)

    lb = settle()
    assert lb.vip_subnet_id == subnet and lb.vip_address and lb.vip_port_id, lb
    listener = lbs.create_listener(
        name="http", load_balancer_id=lb.id, protocol="HTTP", protocol_port=80
    )
    settle()
    pool = lbs.create_pool(
        name="servers", listener_id=listener.id, protocol="HTTP", lb_algorithm="ROUND_ROBIN"
    )
    settle()
    member = lbs.create_member(pool, name="red", address="192.0.2.10", protocol_port=80)
    settle()
    monitor = lbs.create_health_monitor(
        name="check", pool_id=pool.id, type="HTTP", delay=5, timeout=3, max_retries=2
    )
    settle()
    policy = lbs.create_l7_policy(
        name="away",
        listener_id=listener.id,
        action="REDIRECT_TO_URL",
        redirect_url="http://example.org/",
    )
    settle()
    rule = lbs.create_l7_rule(policy, type="PATH", compare_type="STARTS_WITH", value="/old")
    settle()

    lbs.update_load_balancer(lb, description="changed")
    settle()
    lbs.update_member(member, pool, weight=3)
    settle()
    lbs.update_listener(listener, connection_limit=77)
    settle()
    assert lbs.get_load_balancer(lb).description == "changed"
    assert lbs.get_member(member, pool).weight == 3
    assert lbs.get_listener(listener).connection_limit == 77
    assert lbs.find_pool("servers", ignore_missing=False).id == pool.id
    assert [found.id for found in lbs.load_balancers(tags=["sdk"])] == [lb.id]
    assert [found.id for found in lbs.l7_rules(policy)] == [rule.id]
    assert lbs.get_load_balancer_statistics(lb.id).total_connections == 0
    assert lbs.get_quota(lb.project_id).load_balancers == -1
    return {
        "load balancer": lb,
        "listener": listener,
        "pool": pool,
        "member": member,
        "monitor": monitor,
        "policy": policy,
        "rule": rule,
    }


def writes(lbs, it: dict, subnet: str):
    """A create, a change and a removal of each kind."""
    lb, listener, pool = it["load balancer"], it["listener"], it["pool"]
    project = {"project_id": lb.project_id}
    yield lbs.create_load_balancer, {"vip_subnet_id": subnet, **project}
    yield lbs.update_load_balancer, {"load_balancer": lb.id, "name": "taken"}
    yield lbs.delete_load_balancer, {"load_balancer": lb.id, "ignore_missing": False, "cascade": True}
    yield lbs.create_listener, {"load_balancer_id": lb.id, "protocol": "TCP", "protocol_port": 81}
    yield lbs.update_listener, {"listener": listener.id, "name": "taken"}
    yield lbs.delete_listener, {"listener": listener.id, "ignore_missing": False}
    yield lbs.create_pool, {"loadbalancer_id": lb.id, "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN"}
    yield lbs.update_pool, {"pool": pool.id, "name": "taken"}
    yield lbs.delete_pool, {"pool": pool.id, "ignore_missing": False}
    member, rule, policy = it["member"].id, it["rule"].id, it["policy"].id
    yield lbs.create_member, {"pool": pool.id, "address": "192.0.2.11", "protocol_port": 80}
    yield lbs.update_member, {"member": member, "pool": pool.id, "weight": 9}
    yield lbs.delete_member, {"member": member, "pool": pool.id, "ignore_missing": False}
    monitor = it["monitor"].id
    yield lbs.create_health_monitor, {"pool_id": pool.id, "type": "PING", "delay": 5, "timeout": 3, "max_retries": 2}
    yield lbs.update_health_monitor, {"healthmonitor": monitor, "delay": 9}
    yield lbs.delete_health_monitor, {"healthmonitor": monitor, "ignore_missing": False}
    yield lbs.create_l7_policy, {"listener_id": listener.id, "action": "REJECT"}
    yield lbs.update_l7_policy, {"l7_policy": policy, "name": "taken"}
    yield lbs.delete_l7_policy, {"l7_policy": policy, "ignore_missing": False}
    yield lbs.create_l7_rule, {"l7_policy": policy, "type": "PATH", "compare_type": "EQUAL_TO", "value": "/"}
    yield lbs.update_l7_rule, {"l7rule": rule, "l7_policy": policy, "invert": True}
    yield lbs.delete_l7_rule, {"l7rule": rule, "l7_policy": policy, "ignore_missing": False}


def reads(lbs, it: dict):
    """The objects of a project that has them; lists of other projects are empty rather than refused."""
    lb, pool, policy = it["load balancer"].id, it["pool"].id, it["policy"].id
    yield lbs.get_load_balancer, {"load_balancer": lb}
    yield lbs.get_load_balancer_statistics, {"load_balancer": lb}
    yield lbs.get_listener, {"listener": it["listener"].id}
    yield lbs.get_listener_statistics, {"listener": it["listener"].id}
    yield lbs.get_pool, {"pool": pool}
    yield lbs.get_member, {"member": it["member"].id, "pool": pool}
    yield lbs.members, {"pool": pool}
    yield lbs.get_health_monitor, {"healthmonitor": it["monitor"].id}
    yield lbs.get_l7_policy, {"l7_policy": policy}
    yield lbs.get_l7_rule, {"l7rule": it["rule"].id, "l7_policy": policy}
    yield lbs.get_quota, {"quota": it["load balancer"].project_id}


def administration(lbs, it: dict):
    """What only an administrator may do."""
    lb = it["load balancer"]
    yield lbs.failover_load_balancer, {"load_balancer": lb.id}
    yield lbs.amphorae, {}
    yield lbs.update_quota, {"quota": lb.project_id, "load_balancers": 1}
    yield lbs.delete_quota, {"quota": lb.project_id, "ignore_missing": False}
    yield lbs.create_flavor_profile, {"name": "p", "provider_name": "amphora", "flavor_data": "{}"}
    yield lbs.flavor_profiles, {}
    yield lbs.provider_flavor_capabilities, {"provider": "amphora"}


def main(auth_url: str, region: str, subnet: str, password: str) -> None:
    def user(name: str, project: str):
        return connect(auth_url, region, name, project, password)

    member, reader = user("alice", "shop"), user("rita", "shop")
    foreigner, nobody, admin = user("bob", "other"), user("nobody", "shop"), user("root", "admin")
    it = live(member, subnet)
    lb = it["load balancer"]

    for who, lbs in [("reader", reader), ("foreigner", foreigner), ("nobody", nobody)]:
        for call, args in writes(lbs, it, subnet):
            refused(who, call, **args)
        for call, args in administration(lbs, it):
            refused(who, call, **args)
    for call, args in administration(member, it):
        refused("member", call, **args)
    for who, lbs in [("foreigner", foreigner), ("nobody", nobody)]:
        for call, args in reads(lbs, it):
            refused(who, call, **args)
    for lists in [nobody.load_balancers, nobody.pools, nobody.providers, nobody.flavors]:
        refused("nobody", lists)
    refused("foreigner", foreigner.load_balancers, project_id=lb.project_id)
    assert list(foreigner.load_balancers()) == []
    for call, args in reads(reader, it):
        answer = call(**args)
        assert answer is not None and (not hasattr(answer, "__next__") or list(answer))

    # Nothing of all that was done, and nothing was left pending.
    now = member.get_load_balancer(lb)
    assert (now.name, now.provisioning_status) == ("sdk", "ACTIVE"), now
    assert [found.id for found in member.load_balancers()] == [lb.id]
    assert [found.weight for found in member.members(it["pool"])] == [3]
    assert member.get_quota(lb.project_id).load_balancers == -1

    before = [amphora.id for amphora in admin.amphorae(loadbalancer_id=lb.id)]
    admin.failover_load_balancer(lb.id)
    member.wait_for_load_balancer(lb.id, interval=0.05, wait=60)
    after = [a.id for a in admin.amphorae(loadbalancer_id=lb.id) if a.status == "ALLOCATED"]
    assert after and not set(after) & set(before), (before, after)
    admin.update_quota(lb.project_id, load_balancers=1)
    assert reader.get_quota(lb.project_id).load_balancers == 1

    member.delete_load_balancer(lb.id, cascade=True)
    openstack.resource.wait_for_delete(member, lb, interval=0.05, wait=60)
    try:
        member.get_load_balancer(lb.id)
    except NotFoundException:
        print("roles: all good")


if __name__ == "__main__":
    main(*sys.argv[1:])
