//! Spreading routines that are due at the same time.

/// How far a routine's windows are put off, 0 to `jitter_s` seconds (inclusive).
///
/// It depends on the routine alone, so all its windows move by the same amount and keep their distance. The
/// result decides which windows count as late, so this function never changes; a test pins its values.
pub(super) fn delay_s(routine: &[u8; 16], jitter_s: u32) -> i64 {
    let mut state = 0_u64;
    for byte in routine {
        state = mixed(state ^ u64::from(*byte));
    }
    i64::from(u32::try_from(state % (u64::from(jitter_s) + 1)).unwrap_or(jitter_s))
}

/// The step of SplitMix64 (Steele, Lea and Flood, 2014; public domain).
fn mixed(state: u64) -> u64 {
    let state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let state = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let state = (state ^ (state >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    state ^ (state >> 31)
}
