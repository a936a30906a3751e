// SPDX-License-Identifier: Apache-2.0
// Rust, by hand: bindgen makes the declarations of the whole header.
// Build: rustc call_from_rust.rs -L LIBDIR -l dylib=flowk_simt -C link-arg=-Wl,-rpath,LIBDIR
use std::ffi::{c_char, c_void, CStr};

extern "C" {
    fn flowk_batch_transpose(
        src: *const c_void, dst: *mut c_void, batch: i64, rows: i64, cols: i64, dtype: i32, stream: *mut c_void,
    ) -> i32;
    fn flowk_last_error() -> *const c_char;
}
const FLOWK_FLOAT32: i32 = 12;

fn main() {
    let src: Vec<f32> = (0..6).map(|i| i as f32).collect();
    let mut dst = vec![0f32; 6];
    // SAFETY: both slices have 1 * 2 * 3 elements, and libflowk_simt takes host pointers.
    let status = unsafe {
        flowk_batch_transpose(src.as_ptr().cast(), dst.as_mut_ptr().cast(), 1, 2, 3, FLOWK_FLOAT32, std::ptr::null_mut())
    };
    if status != 0 {
        // SAFETY: the text is valid until this thread's next flowk call.
        panic!("{}", unsafe { CStr::from_ptr(flowk_last_error()) }.to_string_lossy());
    }
    println!("{dst:?}");
    assert_eq!(dst, [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
}
