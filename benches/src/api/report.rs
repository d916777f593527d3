//! Tables for people and JSON for programs.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::Result;
use serde::Serialize;

use super::contender::{Kind, Memory};
use super::measure::{Outcome, Sample};
use super::workload::Workload;
use crate::report::{Spread, mib};

/// What all roles of our control plane in one process may hold.
const MEMORY_GOAL_KIB: u64 = 60 * 1024;

/// One contender under one workload.
#[derive(Debug, Serialize)]
struct Row<'a> {
    workload: Workload,
    contender: Kind,
    requests: usize,
    per_second: Option<Spread>,
    own_ms: Option<Spread>,
    database_ms: Option<Spread>,
    broker_ms: Option<Spread>,
    /// Requests for a second of the control plane's CPU.
    per_cpu_second: Option<Spread>,
    /// Octavia's CPU by this one's, the control plane's processes alone, round by round.
    times_octavia: Option<Spread>,
    /// The same with database and broker.
    times_octavia_all: Option<Spread>,
    p50_ms: f64,
    p99_ms: f64,
    bytes: f64,
    errors: usize,
    other_cpus: Option<Spread>,
    samples: &'a [Sample],
}

fn rows(outcome: &Outcome) -> Vec<Row<'_>> {
    outcome
        .samples
        .iter()
        .map(|((workload, contender), samples)| {
            let reference = outcome.samples.get(&(*workload, Kind::Octavia));
            let of = |pick: fn(&Sample) -> f64| Spread::of(samples.iter().map(pick));
            let times = |pick: fn(&Sample) -> f64| {
                let reference = reference.map_or(&[][..], Vec::as_slice);
                let rounds = reference.iter().zip(samples);
                Spread::of(rounds.map(|(theirs, ours)| pick(theirs) / pick(ours)))
            };
            let mut latencies: Vec<f64> = samples
                .iter()
                .flat_map(|sample| sample.latencies_ms.iter().copied())
                .collect();
            latencies.sort_by(f64::total_cmp);
            Row {
                workload: *workload,
                contender: *contender,
                requests: latencies.len(),
                per_second: of(|it| it.per_second),
                own_ms: of(|it| it.own_ms),
                database_ms: of(|it| it.database_ms),
                broker_ms: of(|it| it.broker_ms),
                per_cpu_second: of(|it| 1e3 / it.own_ms),
                times_octavia: times(|it| it.own_ms),
                times_octavia_all: times(|it| it.all_ms),
                p50_ms: quantile(&latencies, 50),
                p99_ms: quantile(&latencies, 99),
                bytes: of(|it| it.bytes).map_or(0.0, |it| it.median),
                errors: samples.iter().map(|it| it.errors).sum(),
                other_cpus: of(|it| it.other_cpus),
                samples,
            }
        })
        .collect()
}

/// Of values in order: the smallest that so many of a hundred do not exceed.
fn quantile(sorted: &[f64], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted
        .get(rank.saturating_sub(1))
        .copied()
        .unwrap_or(f64::NAN)
}

#[derive(Serialize)]
struct Json<'a> {
    environment: &'a BTreeMap<&'static str, String>,
    rows: Vec<Row<'a>>,
    memory: &'a [Memory],
    failures: &'a [String],
}

pub(crate) fn json(outcome: &Outcome) -> Result<String> {
    Ok(serde_json::to_string_pretty(&Json {
        environment: &outcome.environment,
        rows: rows(outcome),
        memory: &outcome.memory,
        failures: &outcome.failures,
    })?)
}

pub(crate) fn tables(outcome: &Outcome) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write_tables(&mut text, outcome);
    text
}

fn write_tables(out: &mut String, outcome: &Outcome) -> std::fmt::Result {
    for (key, value) in &outcome.environment {
        writeln!(out, "{key}: {value}")?;
    }
    let rows = rows(outcome);
    for workload in Workload::ALL {
        let rows: Vec<&Row<'_>> = rows.iter().filter(|row| row.workload == workload).collect();
        if !rows.is_empty() {
            write_workload(out, workload, &rows)?;
        }
    }
    write_services(out, &rows)?;
    write_memory(out, &outcome.memory)
}

fn write_workload(out: &mut String, workload: Workload, rows: &[&Row<'_>]) -> std::fmt::Result {
    let what = match workload {
        Workload::List => "list of 100",
        Workload::Show => "show one",
        Workload::Create => "create (CPU: until all are ACTIVE)",
        Workload::CreateToActive => "create to ACTIVE, one after the other (CPU: looks included)",
    };
    writeln!(out, "\n{what}: CPU milliseconds of a request")?;
    writeln!(
        out,
        "  {:<14}{:>8}{:>15}{:>9}{:>7}{:>10}{:>7}{:>7}{:>12}{:>8}{:>8}{:>8}{:>7}{:>9}{:>8}",
        "",
        "own",
        "min..max",
        "database",
        "broker",
        "per CPU s",
        "times",
        "all",
        "goal",
        "per s",
        "p50 ms",
        "p99 ms",
        "KiB",
        "requests",
        "others"
    )?;
    for row in rows {
        let range = row.own_ms.map_or_else(String::new, |spread| {
            format!("{}..{}", short(spread.min), short(spread.max))
        });
        let compares = row.contender != Kind::Octavia && row.times_octavia.is_some();
        let goal = workload.goal().filter(|_| compares);
        let goal = goal.map_or_else(
            || "-".to_owned(),
            |goal| {
                let met = row.times_octavia.is_some_and(|it| it.median >= goal);
                format!("{goal:.0} {}", met_or_not(met))
            },
        );
        writeln!(
            out,
            "  {:<14}{:>8}{:>15}{:>9}{:>7}{:>10}{:>7}{:>7}{:>12}{:>8}{:>8}{:>8}{:>7}{:>9}{:>8}",
            row.contender.name(),
            median(row.own_ms),
            range,
            median(row.database_ms),
            median(row.broker_ms),
            median(row.per_cpu_second),
            median(row.times_octavia),
            median(row.times_octavia_all),
            goal,
            median(row.per_second),
            short(row.p50_ms),
            short(row.p99_ms),
            short(row.bytes / 1024.0),
            row.requests,
            median(row.other_cpus),
        )?;
        if row.errors > 0 {
            writeln!(out, "  {:<14}{} errors", "", row.errors)?;
        }
    }
    Ok(())
}

/// Who spends it, of a control plane with several processes.
fn write_services(out: &mut String, rows: &[Row<'_>]) -> std::fmt::Result {
    let octavia: Vec<&Row<'_>> = rows
        .iter()
        .filter(|row| row.contender == Kind::Octavia)
        .collect();
    if octavia.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "\nOctavia's own CPU milliseconds of a request, by service"
    )?;
    for row in octavia {
        let mut services: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for sample in row.samples {
            for (name, time) in &sample.service_ms {
                services.entry(name).or_default().push(*time);
            }
        }
        let services: Vec<String> = services
            .into_iter()
            .map(|(name, times)| format!("{name} {}", median(Spread::of(times))))
            .collect();
        writeln!(out, "  {:?}: {}", row.workload, services.join(", "))?;
    }
    Ok(())
}

fn write_memory(out: &mut String, memory: &[Memory]) -> std::fmt::Result {
    writeln!(
        out,
        "\nresident memory after load, MiB{:>35}{:>9}",
        "together", "peak"
    )?;
    for it in memory {
        let together: u64 = it.resident_kib.iter().sum();
        let each: Vec<String> = it
            .resident_kib
            .iter()
            .map(|kib| format!("{:.0}", mib(*kib)))
            .collect();
        let goal = match it.contender {
            Kind::Octavia => String::new(),
            Kind::Sqlite | Kind::Mariadb if !it.own => String::new(),
            Kind::Sqlite | Kind::Mariadb => {
                let met = together < MEMORY_GOAL_KIB;
                format!("goal {:.0} {}", mib(MEMORY_GOAL_KIB), met_or_not(met))
            }
        };
        writeln!(
            out,
            "  {:<15}{:<25}{:>26.1}{:>9.1}  {}  {goal}",
            it.contender.name(),
            it.service,
            mib(together),
            mib(it.peak_kib),
            if each.len() > 1 {
                each.join(" + ")
            } else {
                String::new()
            },
        )?;
    }
    let octavia: u64 = memory
        .iter()
        .filter(|it| it.contender == Kind::Octavia && it.own)
        .flat_map(|it| it.resident_kib.iter())
        .sum();
    if octavia > 0 {
        writeln!(
            out,
            "  {:<40}{:>26.1}",
            "Octavia, its four services",
            mib(octavia)
        )?;
    }
    Ok(())
}

fn met_or_not(met: bool) -> &'static str {
    if met { "met" } else { "missed" }
}

fn median(spread: Option<Spread>) -> String {
    spread.map_or_else(|| "-".to_owned(), |spread| short(spread.median))
}

/// Three digits that count.
fn short(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_one_of_the_values() {
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(quantile(&hundred, 50), 50.0);
        assert_eq!(quantile(&hundred, 99), 99.0);
        assert_eq!(quantile(&[7.0], 50), 7.0);
        assert_eq!(quantile(&[1.0, 2.0, 3.0], 99), 3.0);
        assert!(quantile(&[], 50).is_nan());
    }
}
