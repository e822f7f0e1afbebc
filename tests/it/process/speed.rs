//! What the supervision of a command costs over a plain spawn. A measurement, not a check: run it alone, with
//! `--release --ignored`.

use std::time::{Duration, Instant};

use spettro::world::Exec;

use super::support::isolated_tests;

const ROUNDS: usize = 500;

isolated_tests! {
    #[ignore = "a measurement"]
    async fn spawn_overhead(runner) {
        for heap_mib in [0, 1024] {
            // Written to, so that it is really there.
            let heap = vec![1u8; heap_mib << 20];
            let (mut plain, mut ours) = (Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                let begun = Instant::now();
                let output = std::process::Command::new("/bin/echo").arg("x").output().unwrap();
                plain.push(begun.elapsed());
                assert_eq!(output.stdout, b"x\n");
                let begun = Instant::now();
                let finished = runner.process.run(runner.argv(&["/bin/echo", "x"])).await.unwrap();
                ours.push(begun.elapsed());
                assert_eq!(finished.output.head, b"x\n");
            }
            let (plain, ours) = (median(plain), median(ours));
            let over = ours.saturating_sub(plain);
            println!("heap {heap_mib} MiB: plain {plain:?}, supervised {ours:?}, over {over:?}");
            drop(heap);
        }
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
