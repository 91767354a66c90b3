//! How wide the vectors are that copy lines and search them.
//!
//! Invariant: every width gives the same answers, and a process never changes its width. It is the
//! processor's widest, or the narrower one that the variable [`VARIABLE`] names when the process first asks.
//! Code that uses a width asks here, never the processor, so one name forces all code to it.

use std::fmt;

#[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
use crate::report::report;

/// The environment variable that names the width: `avx512`, `avx2` or `portable`.
pub const VARIABLE: &str = "FARSIGHT_VECTORS";

/// A width, the narrowest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Vectors {
    /// Words of eight bytes, as on any processor.
    Portable,
    /// Half a line at once: AVX2.
    Avx2,
    /// A line at once: AVX-512 with compares of bytes and words (F and BW), with AVX2 and POPCNT.
    Avx512,
}

/// A width that [`VARIABLE`] asks for and that there is not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownVectors {
    asked: String,
    widest: Vectors,
}

impl fmt::Display for UnknownVectors {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { asked, widest } = self;
        let names = Vectors::ALL.map(Vectors::name).join(", ");
        write!(
            formatter,
            "{VARIABLE} is {asked:?}: widths are {names}, and the widest here is {}; name one up to that, or \
             unset it",
            widest.name()
        )
    }
}

impl std::error::Error for UnknownVectors {}

impl Vectors {
    /// Every width, the narrowest first.
    pub const ALL: [Self; 3] = [Self::Portable, Self::Avx2, Self::Avx512];

    /// As [`VARIABLE`] has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
        }
    }

    /// The widest that this processor has and that this build can use.
    #[must_use]
    pub fn widest() -> Self {
        #[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
        if std::is_x86_feature_detected!("avx512f")
            && std::is_x86_feature_detected!("avx512bw")
            && std::is_x86_feature_detected!("popcnt")
            && std::is_x86_feature_detected!("avx2")
        {
            return Self::Avx512;
        } else if std::is_x86_feature_detected!("avx2") {
            return Self::Avx2;
        }
        Self::Portable
    }

    /// The width that this process is to use.
    ///
    /// # Errors
    /// If [`VARIABLE`] names none, or one wider than the widest.
    pub fn chosen() -> Result<Self, UnknownVectors> {
        let asked = std::env::var_os(VARIABLE);
        Self::choose(asked.as_ref().map(|asked| asked.to_string_lossy()).as_deref(), Self::widest())
    }

    /// [`Vectors::chosen`]; where that is an error the operator is told, and the width is the widest.
    #[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
    pub(crate) fn chosen_or_widest() -> Self {
        Self::chosen().unwrap_or_else(|error| {
            report(format_args!("{error}; the width is {}", error.widest.name()));
            error.widest
        })
    }

    fn choose(asked: Option<&str>, widest: Self) -> Result<Self, UnknownVectors> {
        let Some(asked) = asked else { return Ok(widest) };
        let found = Self::ALL.into_iter().find(|vectors| vectors.name() == asked);
        found
            .filter(|found| *found <= widest)
            .ok_or_else(|| UnknownVectors { asked: asked.to_owned(), widest })
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::words::Moves;

    /// Many tests look at the widest vectors where there are any, and otherwise end. Nothing can be installed
    /// on a processor that has none; that one which the kernel knows is left out would be a bug.
    #[cfg(all(target_arch = "x86_64", target_os = "linux", not(any(miri, portable_words))))]
    #[test]
    fn the_widest_width_is_what_the_kernel_knows() {
        let text = std::fs::read_to_string("/proc/cpuinfo").expect("/proc");
        let flags = text.lines().find(|line| line.starts_with("flags")).expect("the processor's features");
        let has = |feature: &str| flags.split_whitespace().any(|flag| flag == feature);
        let expected = if ["avx2", "avx512f", "avx512bw", "popcnt"].into_iter().all(has) {
            Vectors::Avx512
        } else if has("avx2") {
            Vectors::Avx2
        } else {
            Vectors::Portable
        };
        assert_eq!(Vectors::widest(), expected);
        if expected < Vectors::Avx512 {
            println!("NOT RUN: tests of avx512, for the widest here is {}", expected.name());
        }
    }

    /// Says which width this process uses, for the test below.
    #[test]
    fn the_width_in_use() {
        println!("in use: {}", Moves::detect().vectors().name());
    }

    #[test]
    fn a_process_uses_the_width_that_is_named() {
        let widest = Vectors::widest();
        let names = Vectors::ALL.into_iter().filter(|vectors| *vectors <= widest).map(Vectors::name);
        for (asked, used) in names.map(|name| (name, name)).chain([("avx1024", widest.name())]) {
            let mut process = Command::new(std::env::current_exe().expect("this program"));
            process.args(["vectors::tests::the_width_in_use", "--exact", "--nocapture"]);
            let output = process.env(VARIABLE, asked).output().expect("a process");
            let (said, reported) =
                (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            assert!(said.contains(&format!("in use: {used}\n")), "{asked}: {said}");
            assert_eq!(reported.contains("FARSIGHT_VECTORS is"), asked != used, "{asked}: {reported}");
        }
    }

    #[test]
    fn each_width_up_to_the_widest_can_be_asked_for() {
        for widest in Vectors::ALL {
            assert_eq!(Vectors::choose(None, widest), Ok(widest));
            for vectors in Vectors::ALL {
                let chosen = Vectors::choose(Some(vectors.name()), widest);
                assert_eq!(chosen.is_ok_and(|chosen| chosen == vectors), vectors <= widest);
            }
        }
    }

    #[test]
    fn what_is_no_width_is_named_with_those_there_are() {
        for asked in ["", "AVX2", "avx1024", " avx2", "512"] {
            let error = Vectors::choose(Some(asked), Vectors::Avx2).unwrap_err().to_string();
            let wanted = format!("FARSIGHT_VECTORS is {asked:?}: widths are portable, avx2, avx512");
            assert!(error.starts_with(&wanted) && error.contains("widest here is avx2"), "{error}");
        }
    }
}
