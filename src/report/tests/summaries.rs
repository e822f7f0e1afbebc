//! The text and the Markdown summary.

use super::*;

#[test]
fn the_text_summary_says_the_outcome_first() {
    insta::assert_snapshot!(summary_text(&a_result(Outcome::Met)), @r"
    met after 2 iterations, 7 steps, $0.31, 4m12s
    verdict    met (judge, iteration 2)
               All tests pass on serde 2.
    checks     tests pass 3.4s
    changes    2 files, +12 -4, main, 1a2b3c4d
               Cargo.toml
               src/lib.rs
    cost       agent $0.25, judge $0.06
    patch      /home/u/s/changes.patch
    result     /home/u/s/result.json
    ");
    for outcome in Outcome::ALL {
        let text = summary_text(&a_result(outcome));
        assert!(text.starts_with(&format!("{} after 2 iterations, ", outcome.name())), "{text}");
        let page = summary_markdown(&a_result(outcome));
        assert!(page.starts_with(&format!("# {}: `upgrade`\n", outcome.name())), "{page}");
    }
}

/// Everything that a summary can have, with hostile text in it.
fn full() -> RunResult {
    let mut verdict = verdict(VerdictKind::Unmet, 20, "Two tests fail.\n::error::x\n```\n# not a heading");
    verdict.next_step = "Fix `a_test`.\nThen run it.".into();
    verdict.criteria = vec![
        CriterionResult { index: 1, met: true, evidence: "seen | in `lib.rs`\nline 2".into() },
        CriterionResult { index: 2, met: false, evidence: String::new() },
    ];
    let mut failing = check("tests", CheckStatus::Fail, Some(101), 3_400);
    failing.tail = "test a_test ... FAILED\n````\n##[error]y\x1b[0m".into();
    let lint = CheckResult { required: false, ..check("lint", CheckStatus::Timeout, None, 600_000) };
    let base = unfinished(Outcome::CostLimit);
    RunResult {
        limit_hit: Some("limits.cost".into()),
        error: Some(ResultError { message: "the cost limit is reached".into(), hint: Some("`--max-cost +5`".into()) }),
        verdict: Some(verdict),
        checks: vec![failing, lint, check("slow", CheckStatus::NotRun, None, 0)],
        recorded_model: true,
        waited_ms: 1_200_000,
        run_usage: RunUsage { calls: 3, tokens: 12_345, cost: Micros(60_000), iterations: 1, steps: 2 },
        unreported_calls: vec![UnsettledCall {
            lane: Lane::Agent,
            n: 7,
            charged: Micros(20_000),
            why: CostKnown::Reservation,
        }],
        leaked: vec![Leaked { pid: 4711, uid: 0, command: "sudo\nsleep".into() }],
        changes: base.changes.clone().map(|changes| Changes {
            head: Some("5e6f7a8b9c".into()),
            files: (1..=22).map(|n| format!("src/{n}.rs")).collect(),
            ..changes
        }),
        paths: base.paths.clone().map(|paths| Paths { copy: Some("/tmp/copy".into()), ..paths }),
        ..base
    }
}

#[test]
fn the_text_summary_of_a_run_that_had_everything() {
    insta::assert_snapshot!(summary_text(&full()), @r"
    cost_limit (limits.cost) after 2 iterations, 7 steps, $0.31, 4m12s (20m waiting)
    error      the cost limit is reached
    verdict    unmet (judge, iteration 20)
               Two tests fail.
               : :error::x
               ```
               # not a heading
    checks     tests fail (exit 101) 3.4s
               lint timeout 10m optional
               slow not run
    criteria   1 met: seen | in `lib.rs` line 2
               2 not met
    changes    22 files, +12 -4, main, 1a2b3c4d..5e6f7a8b
               src/1.rs
               src/2.rs
               src/3.rs
               src/4.rs
               src/5.rs
               src/6.rs
               src/7.rs
               src/8.rs
               src/9.rs
               src/10.rs
               src/11.rs
               src/12.rs
               src/13.rs
               src/14.rs
               src/15.rs
               src/16.rs
               src/17.rs
               src/18.rs
               src/19.rs
               src/20.rs
               … and 2 more files
    cost       agent $0.25, judge $0.06
    this run   1 iteration, 2 steps, 3 calls, 12,345 tokens, $0.06
    unreported agent call 7: $0.02, its reservation
    left alive sudo sleep (pid 4711, uid 0)
    next step  Fix `a_test`.
               Then run it.
    model      recorded replies
    patch      /home/u/s/changes.patch
    copy       /tmp/copy
    result     /home/u/s/result.json
    ");
}

#[test]
fn the_markdown_summary_of_a_run_that_had_everything() {
    let mut result = full();
    if let Some(changes) = &mut result.changes {
        changes.files.truncate(1);
        changes.files.push("odd `name`".into());
    }
    insta::assert_snapshot!(summary_markdown(&result), @r"
    # cost_limit: `upgrade`

    After 2 iterations, 7 steps, $0.31, 4m12s (20m waiting) (`limits.cost`).

    Sandbox: `off`

    Error:

    ```text
    the cost limit is reached
    ```

    Hint:

    ```text
    `--max-cost +5`
    ```

    Verdict: unmet (judge, iteration 20)

    ````text
    Two tests fail.
    : :error::x
    ```
    # not a heading
    ````

    ## Checks

    | check | status | exit | time | required |
    |---|---|---:|---:|---|
    | `tests` | fail | 101 | 3.4s | yes |
    | `lint` | timeout |  | 10m | no |
    | `slow` | not_run |  | 0ms | yes |

    The end of the output of `tests`:

    `````text
    test a_test ... FAILED
    ````
    # #[error]y
    `````

    ## Criteria

    | # | met | evidence |
    |---:|---|---|
    | 1 | yes | ``seen ¦ in `lib.rs` line 2`` |
    | 2 | no |  |

    ## Cost

    | lane | calls | input tokens | output tokens | cost |
    |---|---:|---:|---:|---:|
    | `agent` | 7 | 40,000 | 2,100 | $0.25 |
    | `judge` | 2 | 2,800 | 100 | $0.06 |
    | all | | | | $0.31/5.00 |

    Charged without the provider's report:

    - agent call 7: $0.02, its reservation

    ## Iterations

    2 iterations of 20, 7 steps of 500.
    This run alone: 1 iteration, 2 steps, 3 calls, 12,345 tokens, $0.06.

    Model `anthropic/claude-opus-4-5` (recorded), judge `openai/gpt-5`, session `session-20261129-120000-0a1b2c3d`.

    ## Changes

    `2 files, +12 -4, main, 1a2b3c4d..5e6f7a8b`

    - `src/1.rs`
    - `` odd `name` ``

    ## Next step

    ```text
    Fix `a_test`.
    Then run it.
    ```

    ## Last message of the agent

    ```text
    I upgraded serde.
    ```

    ## Resume

    ```sh
    spettro run --resume session-20261129-120000-0a1b2c3d
    ```
    ");
}
