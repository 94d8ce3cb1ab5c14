//! What a Bot's command may touch: `confined NETWORK PROGRAM ARGUMENTS…` gives up every right but a few, for good, and
//! becomes the program.
//!
//! The workspace is its working directory. It reads the system's programs and libraries beside it, and neither our
//! key, our ledger nor our environment, which belong to the same account. It signals nobody outside, so that it cannot
//! end its supervisor.

use std::{
    ffi::OsString,
    os::unix::process::CommandExt as _,
    process::{Command, ExitCode},
};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, PathBeneath, PathFd, Ruleset,
    RulesetAttr as _, RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope, path_beneath_rules,
};

use super::{NOT_ALLOWED, NOT_STARTED, Network, refused};

/// Where programs and their libraries are.
const SYSTEM: [&str; 8] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt", "/nix/store"];
/// What programs look up. Not the whole of `/etc`: an account's secrets are kept there too.
const LOOKED_UP: [&str; 30] = [
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/fonts",
    "/etc/group",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/ld.so.preload",
    "/etc/locale.alias",
    "/etc/localtime",
    "/etc/magic",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/os-release",
    "/etc/passwd",
    "/etc/pki",
    "/etc/protocols",
    "/etc/resolv.conf",
    "/etc/services",
    "/etc/ssl",
    "/etc/timezone",
    "/proc/cpuinfo",
    "/proc/filesystems",
    "/proc/loadavg",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/sys",
    "/proc/version",
];
/// Devices that hold nothing.
const DEVICES: [&str; 6] = ["/dev/full", "/dev/null", "/dev/random", "/dev/tty", "/dev/urandom", "/dev/zero"];
/// The newest interface of Linux whose rights are known here; an older one gives what it has.
const KNOWN: ABI = ABI::V6;

pub(super) fn main(arguments: &[OsString]) -> ExitCode {
    let [network, program, rest @ ..] = arguments else {
        return refused(NOT_STARTED, "to be confined needs a network and a program");
    };
    let network = network.to_str().and_then(Network::parse);
    match confine(network.unwrap_or(Network::None)) {
        Ok(RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced) => {
            let error = Command::new(program).args(rest).exec();
            refused(NOT_STARTED, &format!("{} cannot be started: {error}", program.to_string_lossy()))
        }
        Ok(RulesetStatus::NotEnforced) => refused(
            NOT_ALLOWED,
            "this system has no Landlock (Linux 5.13), so the command could reach our key; it was not started. \
             `serve --commands unconfined` starts commands all the same",
        ),
        Err(error) => refused(NOT_ALLOWED, &format!("the command could not be confined and was not started: {error}")),
    }
}

fn confine(network: Network) -> Result<RulesetStatus, RulesetError> {
    let mut rules = Ruleset::default().handle_access(AccessFs::from_all(KNOWN))?;
    rules = match network {
        Network::Any => rules,
        Network::None => {
            let hard = rules.set_compatibility(CompatLevel::HardRequirement);
            hard.handle_access(AccessNet::BindTcp | AccessNet::ConnectTcp)?.set_compatibility(CompatLevel::BestEffort)
        }
    };
    let read = AccessFs::from_read(KNOWN);
    let created = rules
        .scope(Scope::Signal | Scope::AbstractUnixSocket)?
        .create()?
        .add_rules(path_beneath_rules(SYSTEM, read))?
        .add_rules(path_beneath_rules(LOOKED_UP, read))?
        .add_rules(path_beneath_rules(DEVICES, read | AccessFs::WriteFile | AccessFs::IoctlDev))?;
    let Ok(workspace) = PathFd::new(".") else { return Ok(RulesetStatus::NotEnforced) };
    Ok(created.add_rule(PathBeneath::new(workspace, AccessFs::from_all(KNOWN)))?.restrict_self()?.ruleset)
}
