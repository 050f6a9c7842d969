//! Results: a verdict that is the same every time, says why it is bad, and quotes nothing that acts on
//! a terminal.
//!
//! The first line names a preset, or is a provider as YAML on one line; the second one is the exit
//! code; the rest is what was printed, with `=====` before what was printed as errors.

use std::sync::Arc;
use std::time::Duration;

use orch::run::record::Status;
use orch::run::verdict::{Exit, Observed, Retry, Verdict, judge};
use orch::spec::provider::{OutputKind, ProviderConfig, parse, presets};
use orch::text::clean::is_harmful;

pub fn holds(bytes: &[u8]) {
    let mut parts = bytes.splitn(3, |byte| *byte == b'\n');
    let (Some(who), Some(code), Some(printed)) = (parts.next(), parts.next(), parts.next()) else {
        return;
    };
    let (Ok(who), Ok(code)) = (std::str::from_utf8(who), std::str::from_utf8(code)) else {
        return;
    };
    let Some(config) = provider(who) else { return };
    let (stdout, stderr) = parted(printed);
    let exits = [
        Exit::Code(code.trim().parse().unwrap_or(0)),
        Exit::Code(0),
        Exit::Signal(9),
        Exit::TimedOut {
            idle: true,
            after: Duration::from_millis(1500),
        },
        Exit::OutputTooLarge { limit: 1 << 20 },
    ];
    for exit in exits {
        let seen = Observed {
            exit,
            stdout,
            stderr,
        };
        let verdict = judge("tester", &config, &seen);
        assert_eq!(verdict, judge("tester", &config, &seen));
        consistent(&verdict, &config, &seen);
    }
    if config.output == OutputKind::Jsonl {
        among_others(&config, stdout, stderr);
    }
}

fn provider(who: &str) -> Option<Arc<ProviderConfig>> {
    if let Some(config) = presets::config(who) {
        return Some(config);
    }
    let all = parse(&format!("providers:\n  own: {who}\n"));
    match all {
        Ok(all) => all.get("own").cloned(),
        Err(fault) => {
            assert!(!fault.message.is_empty());
            None
        }
    }
}

fn parted(printed: &[u8]) -> (&[u8], &[u8]) {
    let mark = b"=====\n";
    let at = printed.windows(mark.len()).position(|part| part == mark);
    at.map_or((printed, &[]), |at| {
        (&printed[..at], &printed[at + mark.len()..])
    })
}

fn consistent(verdict: &Verdict, config: &ProviderConfig, seen: &Observed<'_>) {
    assert_eq!(verdict.status == Status::Succeeded, verdict.error.is_none());
    assert!(verdict.error.is_some() || verdict.retry == Retry::No);
    if let Exit::Code(code) = seen.exit
        && !config.success.exit_codes.contains(&code)
    {
        assert_ne!(verdict.status, Status::Succeeded);
    }
    if let Some(fault) = &verdict.error {
        let harmful = |c: char| is_harmful(c) || c == '\n' || c == '\t';
        assert!(!fault.message.contains(harmful), "{:?}", fault.message);
        assert!(fault.message.len() < 700, "{:?}", fault.message);
    }
    if let Some(cost) = verdict.usage.as_ref().and_then(|usage| usage.cost_usd) {
        assert!(cost.is_finite());
    }
    if config.output == OutputKind::Text {
        assert!(verdict.text.is_none() && verdict.usage.is_none());
    }
}

/// Lines that are no JSON change nothing about those that are.
fn among_others(config: &ProviderConfig, stdout: &[u8], stderr: &[u8]) {
    let judged = |stdout: &[u8]| {
        let exit = Exit::Code(0);
        let verdict = judge(
            "tester",
            config,
            &Observed {
                exit,
                stdout,
                stderr,
            },
        );
        (verdict.text, verdict.usage, verdict.session_id)
    };
    let noisy = [b"warning: x\n", stdout, b"\n{\"torn\": \"li"].concat();
    assert_eq!(judged(stdout), judged(&noisy));
}
