//! `tenants.d` as Kubernetes mounts a ConfigMap: kubelet exchanges the whole folder that the files are links into.

use std::{fs, os::unix::fs::symlink, path::Path};

use crate::rig::case::{Case, cases};
use crate::rig::stage::{ACME, Stage};
use crate::rig::{site::Site, tenants::Tenant};

pub(crate) const CASES: &[Case] = cases![tenants_of_a_mounted_config_map_come_change_and_go_without_a_signal];

/// Writes a version of the folder in kubelet's order: new files beside the old ones, one link exchanged, then the links of
/// files that are new, and of those that are gone.
fn write(folder: &Path, version: usize, files: &[(&str, String)]) {
    let name = format!("..2026_11_24_04_00_0{version}.1");
    fs::create_dir(folder.join(&name)).unwrap();
    for (file, text) in files {
        fs::write(folder.join(&name).join(file), text).unwrap();
    }
    let before = fs::read_link(folder.join("..data")).ok();
    symlink(&name, folder.join("..data_tmp")).unwrap();
    fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
    for (file, _) in files.iter().filter(|(file, _)| !folder.join(file).is_symlink()) {
        symlink(Path::new("..data").join(file), folder.join(file)).unwrap();
    }
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_symlink() && !path.exists() {
            fs::remove_file(path).unwrap();
        }
    }
    if let Some(before) = before {
        fs::remove_dir_all(folder.join(before)).unwrap();
    }
}

fn tenants_of_a_mounted_config_map_come_change_and_go_without_a_signal(stage: &Stage) {
    let Site { gateway, upstream, .. } = &Site::start(stage);
    let folder = gateway.service.folder.path().join("tenants.d");
    fs::create_dir(&folder).unwrap();
    let tenant = |id: &str, host: &str| Tenant::new(id, host, upstream.address).public().text();
    let second = ("second.toml", tenant("second", "second.test"));
    write(&folder, 1, std::slice::from_ref(&second));
    gateway.until_status("second.test", 200);
    write(
        &folder,
        2,
        &[("second.toml", tenant("second", "moved.test")), ("third.toml", tenant("third", "third.test"))],
    );
    for (host, status) in [("moved.test", 200), ("third.test", 200), ("second.test", 404)] {
        gateway.until_status(host, status);
    }
    write(&folder, 3, &[second]);
    for (host, status) in [("second.test", 200), ("third.test", 404), ("moved.test", 404), (ACME, 200)] {
        gateway.until_status(host, status);
    }
    assert_eq!(gateway.service.samples().get("tiergate_config_last_reload_successful"), 1.0);
}
