//! Numbers with a unit, as options have them.

/// A number with an optional suffix `K`, `M`, `G` or `T` (powers of 1000), and `bit/s` or `bps`
/// behind it, which says what users of a rate mean anyway: `25G`, `25Gbit/s`, `100Gbps`, `1000`.
///
/// # Errors
/// Not such a number, or not at least 1.
pub fn scaled(text: &str) -> Result<u64, String> {
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (digits, suffix) = text.split_at(split);
    let prefix = ["bit/s", "bps", "bit"].into_iter().find_map(|unit| suffix.strip_suffix(unit));
    let factor = match prefix.unwrap_or(suffix) {
        "" => 1.0,
        "K" | "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        _ => return Err(format!("{text} is not a number with K, M, G or T")),
    };
    let value =
        digits.parse::<f64>().map_err(|_| format!("{text} is not a number with K, M, G or T"))? * factor;
    if (1.0..1e18).contains(&value) {
        Ok(value.round() as u64)
    } else {
        Err(format!("{text} is out of range"))
    }
}

/// The rate of a link, as [`scaled`] reads it. Below 1000 bit/s somebody forgot the unit.
///
/// # Errors
/// Not a rate, or one that no link has.
pub fn rate(text: &str) -> Result<u64, String> {
    match scaled(text)? {
        slow @ ..1000 => Err(format!("{text} is {slow} bit/s: say {text}G for Gbit/s")),
        rate => Ok(rate),
    }
}

/// A time: a number and `ns`, `us`, `ms` or `s`, in seconds.
///
/// # Errors
/// Not such a time, or negative.
pub fn time(text: &str) -> Result<f64, String> {
    let bad = || format!("{text} is not a time such as 5us or 0.2s");
    let split = text.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(bad)?;
    let (digits, unit) = text.split_at(split);
    let factor = match unit {
        "ns" => 1e-9,
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => return Err(bad()),
    };
    let value = digits.parse::<f64>().map_err(|_| bad())? * factor;
    // A day and more would overflow the simulator's clock in a few thousand iterations.
    if (0.0..=86_400.0).contains(&value) { Ok(value) } else { Err(bad()) }
}

/// `A<separator>B`, each read by its own function.
///
/// # Errors
/// No separator, or either half is refused.
pub fn pair<A, B>(
    text: &str,
    separator: char,
    a: impl Fn(&str) -> Result<A, String>,
    b: impl Fn(&str) -> Result<B, String>,
) -> Result<(A, B), String> {
    let (first, second) = text.split_once(separator).ok_or_else(|| format!("{text} has no {separator}"))?;
    Ok((a(first)?, b(second)?))
}

/// Any number that `FromStr` knows.
///
/// # Errors
/// It is not one.
pub fn plain<N: std::str::FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| format!("{text} is not a number in range"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_scale_and_nonsense_is_refused() {
        assert_eq!(scaled("25G"), Ok(25_000_000_000));
        assert_eq!(scaled("2.5M"), Ok(2_500_000));
        for text in ["100G", "100Gbps", "100Gbit/s", "100Gbit", "100000000000bps"] {
            assert_eq!(scaled(text), Ok(100_000_000_000), "{text}");
        }
        assert_eq!((rate("1K"), rate("25").is_err()), (Ok(1000), true));
        assert_eq!(time("5us"), Ok(5.0 * 1e-6));
        for text in ["", "G", "0", "-1", "1X", "1e400", "bps", "1Gbyte", "1GBps"] {
            assert!(scaled(text).is_err(), "{text}");
        }
        for text in ["", "5", "us", "-1s", "1h", "nans"] {
            assert!(time(text).is_err(), "{text}");
        }
    }
}
