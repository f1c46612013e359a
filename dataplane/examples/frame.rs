use gradwire::engine::*;
use gradwire::kernels::Kernel;
use gradwire::rules::*;
use gradwire::verdict::*;
use std::hint::black_box;
use std::time::Instant;
#[path = "../tests/common/mod.rs"]
mod common;
use common::*;
fn main() {
    let npy = std::fs::read("testbench/recordings/hdc256_i0040_w0.npy").unwrap();
    let rec = &npy[128..];
    let n = 256;
    const P: usize = 1448;
    let frames: Vec<Vec<u8>> =
        (0..n).map(|i| Spec::tcp((1000 + i * P) as u32, ACK, &rec[i * P..i * P + P]).bytes()).collect();
    let un: Vec<Vec<u8>> = (0..n)
        .map(|i| Spec { tos: 0, ..Spec::tcp((1000 + i * P) as u32, ACK, &rec[i * P..i * P + P]) }.bytes())
        .collect();
    let syn = Spec::tcp(1000, ACK, &[]).syn(1000).bytes();
    for k in Kernel::available() {
        for framing in [Framing::Routed, Framing::InPlace] {
            let rules = Rules::new(&[Rule { framing, ..Rule::DEFAULT }], DEFAULT_MARK).unwrap();
            let mut best = [f64::MAX; 6];
            let mut outs = vec![vec![0u8; 2048]; n];
            let mut lens = vec![0; n];
            let mut scratch = vec![0u8; 4096];
            for _ in 0..200 {
                let mut e = Egress::<64>::new(rules.clone(), k, 1);
                let _ = e.process(&syn, &mut scratch, Millis(0));
                let t = Instant::now();
                for i in 0..n {
                    match e.process(&frames[i], &mut outs[i], Millis(0)) {
                        Verdict::Changed { len, .. } => lens[i] = len,
                        v => panic!("{v:?}"),
                    }
                }
                best[0] = best[0].min(t.elapsed().as_secs_f64() / n as f64);
                let mut ing = Ingress::new(rules.clone(), k, 1500);
                let t = Instant::now();
                for i in 0..n {
                    match ing.process(&outs[i][..lens[i]], &mut scratch) {
                        Verdict::Changed { .. } => {}
                        v => panic!("{v:?}"),
                    }
                }
                best[1] = best[1].min(t.elapsed().as_secs_f64() / n as f64);
                let t = Instant::now();
                for i in 0..n {
                    black_box(e.process(black_box(&un[i]), &mut scratch, Millis(0)));
                }
                best[2] = best[2].min(t.elapsed().as_secs_f64() / n as f64);
                let t = Instant::now();
                for i in 0..n {
                    black_box(k.encode(&frames[i][66..], &mut outs[i], Rule::DEFAULT.params)).unwrap();
                }
                best[3] = best[3].min(t.elapsed().as_secs_f64() / n as f64);
                for i in 0..n {
                    lens[i] = k.encode(&frames[i][66..], &mut outs[i], Rule::DEFAULT.params).unwrap();
                }
                let t = Instant::now();
                for i in 0..n {
                    black_box(k.decode(&outs[i][..lens[i]], &mut scratch[..P], Rule::DEFAULT.params))
                        .unwrap();
                }
                best[4] = best[4].min(t.elapsed().as_secs_f64() / n as f64);
                let t = Instant::now();
                for i in 0..n {
                    black_box(k.sum(black_box(&frames[i][34..])));
                }
                best[5] = best[5].min(t.elapsed().as_secs_f64() / n as f64);
            }
            let b = best.map(|x| x * 1e9);
            println!(
                "{:9} {:?} egress {:.0} ({:.2}x kernel {:.0}) ingress {:.0} ({:.2}x kernel {:.0}) untagged {:.1} (1/{:.0}) sum {:.1}",
                k.name(),
                framing,
                b[0],
                b[0] / b[3],
                b[3],
                b[1],
                b[1] / b[4],
                b[4],
                b[2],
                b[0] / b[2],
                b[5]
            );
        }
    }
}
