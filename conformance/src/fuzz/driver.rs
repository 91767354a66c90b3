//! The driver that needs no tools: each target's seeds, mutated from one number.
//!
//! The same number gives the same inputs on every machine. What fails is printed in hexadecimal, to be given
//! to the target again. It knows nothing of the code that it reaches; libFuzzer (`cargo xtask fuzz`) does.

use farsight_base::prng::SplitMix64;
use farsight_base::report::say;

use super::Target;

/// Bytes of an input at most.
const INPUT_BYTES_MAX: usize = 4096;
/// Numbers that code likes to compare with.
const INTERESTING: [u64; 12] = [0, 1, 7, 8, 63, 64, 255, 256, 1 << 16, 1 << 32, (1 << 63) - 1, u64::MAX];

/// Runs `target` on its seeds, and on `count` mutations of them. A panic of the target ends the run; the
/// input is printed before.
pub fn run(target: &Target, mut random: SplitMix64, count: usize) {
    let seeds = (target.seeds)();
    for seed in &seeds {
        run_one(target, seed);
    }
    for _ in 0..count {
        run_one(target, &mutated(&seeds, &mut random));
    }
}

/// One input of `target`: a seed of it, mutated.
pub fn input(target: &Target, random: &mut SplitMix64) -> Vec<u8> {
    mutated(&(target.seeds)(), random)
}

fn mutated(seeds: &[Vec<u8>], random: &mut SplitMix64) -> Vec<u8> {
    let mut input = Vec::new();
    if !seeds.is_empty() && random.below(16) != 0 {
        input.extend_from_slice(&seeds[random.below(seeds.len() as u64) as usize]);
    } else {
        let length = random.below(200);
        input.extend((0..length).map(|_| random.next_u64() as u8));
    }
    for _ in 0..=random.below(8) {
        mutate(&mut input, seeds, random);
    }
    input.truncate(INPUT_BYTES_MAX);
    input
}

/// Runs `target` on one input, and prints that if it fails.
fn run_one(target: &Target, input: &[u8]) {
    /// Prints the input when a panic passes by.
    struct Evidence<'a>(&'a str, &'a [u8]);
    impl Drop for Evidence<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                let hex: Vec<String> = self.1.iter().map(|byte| format!("{byte:02x}")).collect();
                say(format_args!("target {} fails on {} B: {}", self.0, self.1.len(), hex.concat()));
            }
        }
    }
    let _evidence = Evidence(target.name, input);
    (target.run)(input);
}

fn mutate(input: &mut Vec<u8>, seeds: &[Vec<u8>], random: &mut SplitMix64) {
    let length = input.len() as u64;
    let at = random.below(length + 1) as usize;
    let some = (1 + random.below(16)) as usize;
    let end = (at + some).min(input.len());
    match random.below(8) {
        0 => input.truncate(at),
        1 => drop(input.drain(at..end)),
        2 => drop(input.splice(at..at, (0..some).map(|_| random.next_u64() as u8))),
        3 => input.extend_from_within(at..end),
        4 => {
            let bytes = INTERESTING[random.below(INTERESTING.len() as u64) as usize].to_le_bytes();
            let width = [1, 2, 4, 8][random.below(4) as usize].min(input.len() - at);
            input[at..at + width].copy_from_slice(&bytes[..width]);
        }
        5 => {
            let Some(other) = seeds.get(random.below(seeds.len().max(1) as u64) as usize) else { return };
            let tail = &other[random.below(other.len() as u64 + 1) as usize..];
            input.truncate(at);
            input.extend_from_slice(tail);
        }
        6 => input[at..end].fill_with(|| random.next_u64() as u8),
        _ => {
            if let Some(byte) = input.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
    }
}
