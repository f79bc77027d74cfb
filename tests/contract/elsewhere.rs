//! Cases that are about the embedded store's file, and so say nothing of Redis: each with the reason.

/// Topic and name of the case, and what of the file it is about.
pub(crate) const ABOUT_THE_FILE: &[(&str, &str, &str)] = &[
    (
        "crash",
        "a_second_process_on_the_same_folder_is_refused",
        "replicas may share a Redis: nothing to refuse",
    ),
    ("crash", "a_full_disk_is_500_and_loses_nothing", "redis_faults fills the memory of Redis instead"),
    (
        "secrets",
        "the_stores_file_holds_no_key",
        "replicas::redis_holds_no_key_and_no_signature looks into Redis instead",
    ),
];
