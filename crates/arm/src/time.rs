//! Times on the wire: `systemData` and operations with seven fractional digits, update statuses with up to nine; always
//! UTC (`arm-api.md` §7).

use jiff::Timestamp;

/// Seven fractional digits, as `systemData` and operations have them.
pub fn seven_digits(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S.%7fZ").to_string()
}

/// Up to nine fractional digits, as statuses of update runs have them.
pub fn shortest(at: Timestamp) -> String {
    at.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_seven_or_up_to_nine_digits_and_end_in_z() {
        let at: Timestamp = "2026-11-04T03:04:31.508539313Z".parse().expect("time");
        let whole: Timestamp = "2026-11-04T03:04:31Z".parse().expect("time");
        assert_eq!(seven_digits(at), "2026-11-04T03:04:31.5085393Z");
        assert_eq!(seven_digits(whole), "2026-11-04T03:04:31.0000000Z");
        assert_eq!(shortest(at), "2026-11-04T03:04:31.508539313Z");
        assert_eq!(shortest(whole), "2026-11-04T03:04:31Z");
    }
}
