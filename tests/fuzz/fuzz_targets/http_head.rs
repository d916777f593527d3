//! Request heads, response heads and chunked bodies from strangers.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    amphora_proxy::fuzzing::request_head(bytes);
    amphora_proxy::fuzzing::response_head(bytes);
    amphora_proxy::fuzzing::chunks(bytes);
});
