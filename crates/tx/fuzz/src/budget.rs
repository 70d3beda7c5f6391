//! No input may make us allocate without bound.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A target may hold so many bytes more than before its input came, and so many more for each byte of the input. (rust-bitcoin believes a
/// witness that says it has four million elements: 16 MB, and 32 MB more where the first of them says that it is long. That is once, for
/// the next byte that is missing ends it.)
const FIXED: usize = 64 << 20;
const PER_BYTE: usize = 1024;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn took(bytes: usize) {
    // A panic fails the target anyway, and its backtrace may allocate more than the budget.
    if LIVE.fetch_add(bytes, Relaxed).saturating_add(bytes) > LIMIT.load(Relaxed) && !std::thread::panicking() {
        // The limit is lifted first, because to write and to abort may allocate.
        LIMIT.store(usize::MAX, Relaxed);
        drop(std::io::stderr().write_all(b"more memory than the input is worth\n"));
        std::process::abort();
    }
}

// SAFETY: every call goes to the system's allocator; the sums beside it touch no memory that is handed out.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        // SAFETY: the caller's promise is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        // SAFETY: the caller's promise is the same.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promise is the same.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        took(size);
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promise is the same.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Runs a target, and aborts when it allocates more than its input is worth.
pub fn within_budget(bytes: &[u8], target: impl FnOnce(&[u8])) {
    LIMIT.store(LIVE.load(Relaxed) + FIXED + PER_BYTE * bytes.len(), Relaxed);
    target(bytes);
    LIMIT.store(usize::MAX, Relaxed);
}
