use gradwire::engine::*;
use gradwire::kernels::Kernel;
use gradwire::rules::*;
use gradwire::verdict::*;
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
    let syn = Spec::tcp(1000, ACK, &[]).syn(1000).bytes();
    let k = Kernel::detect();
    let framing = Framing::Routed;
    let rules = Rules::new(&[Rule { framing, ..Rule::DEFAULT }], DEFAULT_MARK).unwrap();
    let mut outs = vec![vec![0u8; 2048]; n];
    let mut lens = vec![0; n];
    let mut scratch = vec![0u8; 4096];
    let which = std::env::args().nth(1).unwrap();
    for _ in 0..20000 {
        let mut e = Egress::<1>::new(rules.clone(), k, 1);
        let _ = e.process(&syn, &mut scratch, Millis(0));
        if which == "e" || lens[0] == 0 {
            for i in 0..n {
                match e.process(&frames[i], &mut outs[i], Millis(0)) {
                    Verdict::Changed { len, .. } => lens[i] = len,
                    v => panic!("{v:?}"),
                }
            }
        } else {
            let mut ing = Ingress::new(rules.clone(), k, 1500);
            for i in 0..n {
                match ing.process(&outs[i][..lens[i]], &mut scratch) {
                    Verdict::Changed { .. } => {}
                    v => panic!("{v:?}"),
                }
            }
        }
    }
}
