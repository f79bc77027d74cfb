//! The threads that serve: how many there are, and what becomes of the process when one of them dies.

use std::path::{Path, PathBuf};
use std::{fs, process::Command};

use crate::rig::case::{Case, cases};
use crate::rig::{gateway::Gateway, site::Site, stage::Stage};
use crate::support::redis::Redis;
use crate::support::time::{SOON, until};

pub(crate) const CASES: &[Case] = cases![
    a_dead_worker_ends_the_process_as_a_fault_of_ours,
    a_dead_writer_of_the_store_ends_the_process_as_a_fault_of_ours,
    as_many_threads_serve_as_the_file_says_and_by_default_one_for_each_processor,
];

pub(crate) const OF_REDIS: &[Case] = cases![of_all_workers_one_asks_redis_about_itself];

/// A library in front of the system's, of which one call fails in one thread once a file is there. The runtime of a worker panics
/// when it can't wait for its sockets, and the standard library when it can't tell the time. The report of a panic needs the time
/// again, so that fails once.
const FAILING: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int fails(const char *call) {
    char name[16] = "";
    const char *thread = getenv("FAILING_THREAD"), *sign = getenv("FAILING_SIGN"), *which = getenv("FAILING_CALL");
    prctl(PR_GET_NAME, name);
    return thread && sign && which && !strcmp(which, call) && !strcmp(name, thread) && !access(sign, F_OK);
}

int epoll_wait(int epoll, struct epoll_event *events, int count, int millis) {
    if (fails("epoll_wait")) {
        errno = EBADF;
        return -1;
    }
    return syscall(SYS_epoll_pwait, epoll, events, count, millis, NULL, 0);
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    static int has_failed;
    if (!has_failed && fails("clock_gettime")) {
        has_failed = 1;
        errno = EINVAL;
        return -1;
    }
    return syscall(SYS_clock_gettime, clock, time);
}
"#;

/// Compiles the library, and gives what is put in front of the program.
fn failing(folder: &Path, thread: &str, call: &str, sign: &Path) -> String {
    let (source, library) = (folder.join("failing.c"), folder.join("failing.so"));
    fs::write(&source, FAILING).unwrap();
    let compiled = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status();
    assert!(compiled.unwrap().success());
    let [library, sign] = [&library, sign].map(|path| path.display().to_string());
    format!("export LD_PRELOAD={library} FAILING_THREAD={thread} FAILING_CALL={call} FAILING_SIGN={sign}")
}

/// Lets a thread die by a call that fails, and waits for the end of the process.
fn dies(stage: &Stage, thread: &str, call: &str, wakes: impl Fn(&Site)) {
    let folder = tempfile::tempdir().unwrap();
    let sign = folder.path().join("sign");
    let limits = failing(folder.path(), thread, call, &sign);
    let site = Site::of(stage).under(&limits).start();
    let process = site.gateway.service.process.as_ref().unwrap();
    fs::write(sign, "").unwrap();
    let code = until("the process ends", SOON, || {
        wakes(&site);
        process.exit_code()
    });
    let log = site.gateway.service.log();
    let sentence = format!("tiergate: the thread {thread} has ended, and the process with it");
    assert_eq!((code, log.matches(&sentence).count()), (101, 1), "{log}");
    assert!(log.contains("tiergate: internal error at "), "{log}");
    assert!(!log.contains(": stopped"), "{log}");
}

fn a_dead_worker_ends_the_process_as_a_fault_of_ours(stage: &Stage) {
    dies(stage, "worker", "epoll_wait", |site| drop(std::net::TcpStream::connect(site.gateway.address)));
}

fn a_dead_writer_of_the_store_ends_the_process_as_a_fault_of_ours(stage: &Stage) {
    // It looks at its file each second.
    dies(stage, "store-writer", "clock_gettime", |_| ());
}

/// How many threads of this name the process has.
fn threads(gateway: &Gateway, name: &str) -> usize {
    let tasks = PathBuf::from(format!("/proc/{}/task", gateway.service.process.as_ref().unwrap().pid));
    let names = fs::read_dir(tasks).unwrap().flatten();
    let names = names.map(|task| fs::read_to_string(task.path().join("comm")).unwrap_or_default());
    names.filter(|found| found.trim() == name).count()
}

fn as_many_threads_serve_as_the_file_says_and_by_default_one_for_each_processor(stage: &Stage) {
    let processors = std::thread::available_parallelism().unwrap().get();
    let by_default = stage.site();
    assert_eq!(threads(&by_default.gateway, "worker"), processors);
    let three = Site::of(stage).set("listen.workers", 3).start();
    assert_eq!((threads(&three.gateway, "worker"), three.status()), (3, 200));
    let on_one = Site::of(stage).under("taskset --cpu-list --pid 0 $$ >/dev/null").start();
    assert_eq!((threads(&on_one.gateway, "worker"), on_one.status()), (1, 200));
}

/// How often Redis was asked this by others than the test, which asks for it `own` times.
fn calls(stats: &str, command: &str, own: usize) -> usize {
    let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
    let calls = line.and_then(|line| line.split(',').next()).map_or(0, |calls| calls.parse().unwrap());
    calls - own
}

fn of_all_workers_one_asks_redis_about_itself(stage: &Stage) {
    const WORKERS: i64 = 8;
    let redis = Redis::start(&[]);
    redis.be_in_use(0);
    let site = Site::of(stage)
        .set("listen.workers", WORKERS)
        .set("store.kind", "redis")
        .set("store.redis.url", redis.url(0))
        .agent(4)
        .unlimited()
        .start();
    // One of each worker, one of the store's own thread, and that of the question.
    let all = usize::try_from(WORKERS).unwrap() + 2;
    until("each worker has a connection", SOON, || {
        assert_eq!(site.by_key().ask(site.gateway.address).status, 200);
        let clients: String = redis::from_redis_value(redis.command(&["CLIENT", "LIST"])).unwrap();
        (clients.lines().count() >= all).then_some(())
    });
    redis.command(&["CONFIG", "RESETSTAT"]);
    let mut own = 0;
    let (looks, tries) = until("connections are tried", SOON, || {
        let stats: String = redis::from_redis_value(redis.command(&["INFO", "commandstats"])).unwrap();
        let found = (calls(&stats, "info", own), calls(&stats, "time", 0));
        own += 1;
        (found.0 + found.1 >= 48).then_some(found)
    });
    // The scripts that look at binding and nonces ask too, once a second each.
    assert!(looks * 2 < tries, "{looks} INFO and {tries} TIME");
}
