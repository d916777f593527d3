//! Tables for people and JSON for programs.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::Result;
use serde::Serialize;
use serde_json::Value;

use crate::contender::Contender;
use crate::load::Workload;
use crate::measure::{Memory, Outcome, Sample};

/// One contender under one workload.
#[derive(Debug, Serialize)]
struct Row<'a> {
    workload: Workload,
    contender: Contender,
    unit: &'static str,
    /// How `cpu_us` was found.
    accounting: Accounting,
    /// The balancer's CPU microseconds per unit.
    cpu_us: Option<Spread>,
    /// `cpu_us` by that of HAProxy in the mode that does the same work, round by round.
    ratio_to_haproxy: Option<Spread>,
    /// `cpu_us` over that of a plain router in its place.
    over_direct_us: Option<Spread>,
    /// The balancer's processes alone.
    process_us: Option<Spread>,
    /// Clients, members and balancer together.
    rig_us: Option<Spread>,
    units_per_second: Option<Spread>,
    errors: u64,
    other_cpus: Option<Spread>,
    samples: &'a [Sample],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Accounting {
    /// Processes and NAPI threads of the balancer.
    Attributed,
    /// The rig's CPU less the rig's CPU with a plain router.
    Difference,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values
            .into_iter()
            .filter(|value| value.is_finite())
            .collect();
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        let upper = *values.get(middle)?;
        let median = if values.len().is_multiple_of(2) {
            let lower = *values.get(middle.checked_sub(1)?)?;
            f64::midpoint(lower, upper)
        } else {
            upper
        };
        Some(Spread {
            median,
            min: *values.first()?,
            max: *values.last()?,
        })
    }
}

fn accounting(workload: Workload) -> Accounting {
    match workload {
        Workload::Connection | Workload::Request | Workload::Datagram => Accounting::Attributed,
        Workload::Bulk => Accounting::Difference,
    }
}

fn unit(workload: Workload) -> &'static str {
    match workload {
        Workload::Connection => "connection",
        Workload::Request => "request",
        Workload::Datagram => "exchange",
        Workload::Bulk => "gigabit",
    }
}

fn rows(outcome: &Outcome) -> Vec<Row<'_>> {
    outcome
        .samples
        .iter()
        .map(|((workload, contender), samples)| {
            let direct = by_round(outcome, *workload, Contender::Direct);
            let reference = costs(outcome, *workload, contender.reference());
            let cost = costs(outcome, *workload, *contender);
            let of = |pick: fn(&Sample) -> f64| Spread::of(samples.iter().map(pick));
            let over_direct = samples.iter().filter_map(|sample| {
                let direct = direct.get(&sample.round)?;
                Some(match accounting(*workload) {
                    Accounting::Attributed => sample.balancer_us? - direct.balancer_us?,
                    Accounting::Difference => sample.rig_us - direct.rig_us,
                })
            });
            Row {
                workload: *workload,
                contender: *contender,
                unit: unit(*workload),
                accounting: accounting(*workload),
                cpu_us: Spread::of(cost.values().copied()),
                ratio_to_haproxy: Spread::of(
                    cost.iter()
                        .filter_map(|(round, cost)| Some(cost / reference.get(round)?)),
                ),
                over_direct_us: Spread::of(over_direct),
                process_us: of(|sample| sample.process_us),
                rig_us: of(|sample| sample.rig_us),
                units_per_second: of(|sample| sample.units_per_second),
                errors: samples.iter().map(|sample| sample.errors).sum(),
                other_cpus: of(|sample| sample.other_cpus),
                samples,
            }
        })
        .collect()
}

fn by_round(
    outcome: &Outcome,
    workload: Workload,
    contender: Contender,
) -> BTreeMap<usize, &Sample> {
    outcome
        .samples
        .get(&(workload, contender))
        .into_iter()
        .flatten()
        .map(|sample| (sample.round, sample))
        .collect()
}

/// The balancer's cost in each round.
fn costs(outcome: &Outcome, workload: Workload, contender: Contender) -> BTreeMap<usize, f64> {
    let direct = by_round(outcome, workload, Contender::Direct);
    by_round(outcome, workload, contender)
        .into_iter()
        .filter_map(|(round, sample)| {
            let cost = match accounting(workload) {
                Accounting::Attributed => sample.balancer_us?,
                Accounting::Difference => sample.rig_us - direct.get(&round)?.rig_us,
            };
            Some((round, cost))
        })
        .collect()
}

#[derive(Serialize)]
struct Json<'a> {
    environment: &'a BTreeMap<String, String>,
    rows: Vec<Row<'a>>,
    memory: &'a [Memory],
    test_run: &'a [Value],
    failures: &'a [String],
}

pub(crate) fn json(outcome: &Outcome) -> Result<String> {
    Ok(serde_json::to_string_pretty(&Json {
        environment: &outcome.environment,
        rows: rows(outcome),
        memory: &outcome.memory,
        test_run: &outcome.packets,
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
    if !outcome.packets.is_empty() {
        writeln!(out, "\neBPF programs alone, by BPF_PROG_TEST_RUN")?;
        for line in &outcome.packets {
            writeln!(out, "  {}", one_line(line))?;
        }
    }
    if !outcome.memory.is_empty() {
        writeln!(
            out,
            "\nresident memory, MiB{:>17}{:>13}",
            "idle", "under load"
        )?;
        for memory in &outcome.memory {
            writeln!(
                out,
                "  {:<26}{:>9.1}{:>13.1}",
                memory.what,
                mib(memory.idle_kib),
                mib(memory.load_kib)
            )?;
        }
    }
    Ok(())
}

fn write_workload(out: &mut String, workload: Workload, rows: &[&Row<'_>]) -> std::fmt::Result {
    let (scale, measure) = match workload {
        Workload::Bulk => (1e-3, "ms"),
        Workload::Connection | Workload::Request | Workload::Datagram => (1.0, "µs"),
    };
    let what = match accounting(workload) {
        Accounting::Attributed => "its processes and the NAPI threads of its links",
        Accounting::Difference => "the whole rig's CPU over that with a plain router",
    };
    writeln!(
        out,
        "\n{measure} of the balancer's CPU per {} ({what})",
        unit(workload)
    )?;
    writeln!(
        out,
        "  {:<15}{:>9}{:>18}{:>9}{:>13}{:>10}{:>11}{:>11}{:>8}{:>8}",
        "",
        "median",
        "min..max",
        "ratio",
        "over direct",
        "process",
        "whole rig",
        "per s",
        "errors",
        "others"
    )?;
    let number = |spread: Option<Spread>, scale: f64, digits: usize| {
        spread.map_or_else(
            || "-".to_owned(),
            |spread| format!("{:.digits$}", spread.median * scale),
        )
    };
    for row in rows {
        let range = row.cpu_us.map_or_else(String::new, |spread| {
            format!("{:.1}..{:.1}", spread.min * scale, spread.max * scale)
        });
        writeln!(
            out,
            "  {:<15}{:>9}{:>18}{:>9}{:>13}{:>10}{:>11}{:>11}{:>8}{:>8}",
            row.contender.name(),
            number(row.cpu_us, scale, 1),
            range,
            number(row.ratio_to_haproxy, 1.0, 2),
            number(row.over_direct_us, scale, 1),
            number(row.process_us, scale, 1),
            number(row.rig_us, scale, 1),
            number(
                row.units_per_second,
                1.0,
                if workload == Workload::Bulk { 1 } else { 0 }
            ),
            row.errors,
            number(row.other_cpus, 1.0, 2),
        )?;
    }
    Ok(())
}

fn one_line(value: &Value) -> String {
    match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| match value {
                Value::String(text) => format!("{key}={text}"),
                other => format!("{key}={other}"),
            })
            .collect::<Vec<_>>()
            .join("  "),
        other => other.to_string(),
    }
}

pub(crate) fn mib(kib: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let kib = kib as f64;
    kib / 1024.0
}
