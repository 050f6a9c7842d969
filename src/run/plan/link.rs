//! Makes a plan of what is written: resolves every reference and reports every error.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::master::{self, RawPhase, RawTask};
use super::task_file::{self, Meta, Said};
use super::{Folder, MASTER, MAX_FILE_BYTES, MAX_TASKS, Phase, Plan, PlanFault, Task, Tick, ids};

pub(super) fn plan(folder: &Folder) -> Result<Plan, Vec<PlanFault>> {
    let long = too_long(folder);
    if !long.is_empty() {
        return Err(long);
    }
    let master = master::read(&folder.master);
    let mut link = Link {
        folder,
        faults: master.faults,
        by_key: HashMap::new(),
        listed: Vec::new(),
    };
    link.numbers(&master.phases);
    link.collect(&master.phases);
    link.orphans();
    let tasks = link.tasks();
    link.cycles(&tasks);
    let phases = link.phases(&master.phases);
    let mut faults = link.faults;
    match faults.is_empty() {
        true => Ok(Plan { phases, tasks }),
        false => {
            faults.sort_by(|a, b| {
                (a.file != MASTER, &a.file, a.line).cmp(&(b.file != MASTER, &b.file, b.line))
            });
            faults.dedup();
            Err(faults)
        }
    }
}

fn too_long(folder: &Folder) -> Vec<PlanFault> {
    let files = folder
        .files
        .iter()
        .map(|(name, text)| (name.as_str(), text));
    let all = files.chain([(MASTER, &folder.master)]);
    all.filter(|(_, text)| text.len() > MAX_FILE_BYTES)
        .map(|(name, text)| {
            let message = format!(
                "it is {} bytes long, more than {MAX_FILE_BYTES}",
                text.len()
            );
            PlanFault::new(name, 0, message, "keep the text of a plan short")
        })
        .collect()
}

/// A task that the master plan lists, with its file.
struct Listed<'r> {
    phase: usize,
    raw: &'r RawTask,
    file: Option<String>,
    meta: Meta,
}

struct Link<'r> {
    folder: &'r Folder,
    faults: Vec<PlanFault>,
    /// The first task of each id.
    by_key: HashMap<String, usize>,
    listed: Vec<Listed<'r>>,
}

impl<'r> Link<'r> {
    fn fault(
        &mut self,
        file: &str,
        line: usize,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.faults.push(PlanFault::new(file, line, message, hint));
    }

    fn numbers(&mut self, phases: &[RawPhase]) {
        if phases.is_empty() {
            self.fault(
                MASTER,
                0,
                "it has no phase",
                "begin each phase with a heading such as `## Phase 1: Foundations`",
            );
        }
        for pair in phases.windows(2) {
            if pair[1].number <= pair[0].number {
                let message = format!(
                    "phase {} comes after phase {}",
                    pair[1].number, pair[0].number
                );
                self.fault(
                    MASTER,
                    pair[1].line,
                    message,
                    "number the phases in ascending order, each once",
                );
            }
        }
        for phase in phases {
            if phase.tasks.is_empty() {
                let message = format!("phase {} has no task", phase.number);
                self.fault(
                    MASTER,
                    phase.line,
                    message,
                    "write `- [ ] 01: what it is (`01-name.md`)` for each task, or remove the phase",
                );
            }
        }
        let count: usize = phases.iter().map(|phase| phase.tasks.len()).sum();
        if count > MAX_TASKS {
            let message = format!("it has {count} tasks, more than {MAX_TASKS}");
            self.fault(MASTER, 0, message, "split the work into several plans");
        }
    }

    fn collect(&mut self, phases: &'r [RawPhase]) {
        let mut taken: BTreeMap<String, String> = BTreeMap::new();
        for (phase, raw) in phases
            .iter()
            .enumerate()
            .flat_map(|(place, phase)| phase.tasks.iter().map(move |raw| (place, raw)))
        {
            let key = ids::key(&raw.id);
            if let Some(first) = self.by_key.get(&key) {
                let message = format!(
                    "task `{}` is listed twice; the other is in line {}",
                    raw.id, self.listed[*first].raw.line
                );
                self.fault(MASTER, raw.line, message, "give each task an id of its own");
            }
            self.by_key.entry(key).or_insert(self.listed.len());
            let file = self.file_of(raw);
            let meta = match &file {
                Some(name) => self.meta(name, raw),
                None => Meta::default(),
            };
            if let Some(name) = &file
                && let Some(other) = taken.insert(name.clone(), raw.id.clone())
                && ids::key(&other) != ids::key(&raw.id)
            {
                let message = format!(
                    "tasks `{other}` and `{}` have the same file `{name}`",
                    raw.id
                );
                self.fault(MASTER, raw.line, message, "each task has a file of its own");
            }
            self.listed.push(Listed {
                phase,
                raw,
                file,
                meta,
            });
        }
    }

    /// The name of a task's file: as its line says, else the one that its id leads to.
    fn file_of(&mut self, raw: &RawTask) -> Option<String> {
        if let Some(written) = &raw.file {
            if written.starts_with('/') || written.split('/').any(|part| part == "..") {
                let message = format!(
                    "the file `{written}` of task `{}` is outside the plan's folder",
                    raw.id
                );
                self.fault(
                    MASTER,
                    raw.line,
                    message,
                    "write only the file name; the file is beside the master plan",
                );
                return None;
            }
            let name = written.rsplit('/').next().unwrap_or(written);
            if self.folder.files.contains_key(name) {
                return Some(name.to_owned());
            }
            let message = format!("task `{}` has no file `{name}`", raw.id);
            self.fault(
                MASTER,
                raw.line,
                message,
                "write that file, with the task's metadata",
            );
            return None;
        }
        let key = ids::key(&raw.id);
        let fits = |name: &&String| ids::of_file(name).is_some_and(|id| ids::key(id) == key);
        let mut fitting = self.folder.files.keys().filter(fits).cloned();
        match (fitting.next(), fitting.next()) {
            (Some(name), None) => Some(name),
            (None, _) => {
                let message = format!("task `{}` has no file", raw.id);
                let hint = format!(
                    "write `{}-name.md` beside the master plan, and name it in the task's line",
                    raw.id
                );
                self.fault(MASTER, raw.line, message, hint);
                None
            }
            (Some(one), Some(two)) => {
                let message = format!("the file of task `{}` may be `{one}` or `{two}`", raw.id);
                self.fault(
                    MASTER,
                    raw.line,
                    message,
                    "name the file in the task's line",
                );
                None
            }
        }
    }

    fn meta(&mut self, name: &str, raw: &RawTask) -> Meta {
        let text = self.folder.files.get(name).map_or("", String::as_str);
        let (meta, faults) = task_file::read(name, text);
        self.faults.extend(faults);
        if let Some((line, Some(id), _)) = &meta.heading
            && ids::key(id) != ids::key(&raw.id)
        {
            let message = format!(
                "the file says that it is task `{id}`, but the plan lists it as `{}`",
                raw.id
            );
            self.fault(name, *line, message, "make the two the same");
        }
        for (line, path) in &meta.files {
            if escapes(path) {
                let message = format!("`{path}` is outside the working folder");
                self.fault(
                    name,
                    *line,
                    message,
                    "write a path relative to the working folder, without `..`",
                );
            }
        }
        meta
    }

    /// Files that look like a task's but belong to no task.
    fn orphans(&mut self) {
        let listed: BTreeSet<&str> = self
            .listed
            .iter()
            .filter_map(|task| task.file.as_deref())
            .collect();
        let named: BTreeSet<&str> = self
            .listed
            .iter()
            .filter_map(|task| task.raw.file.as_deref()?.rsplit('/').next())
            .collect();
        let nobodys = |name: &&String| {
            ids::is_task_file(name)
                && !listed.contains(name.as_str())
                && !named.contains(name.as_str())
        };
        let orphans: Vec<String> = self.folder.files.keys().filter(nobodys).cloned().collect();
        for name in orphans {
            self.fault(&name, 0, "no phase lists this task", "list it in the master plan as `- [ ] 01: what it is (`01-name.md`)`, or remove the file");
        }
    }

    fn tasks(&mut self) -> Vec<Task> {
        let mut tasks = Vec::new();
        for place in 0..self.listed.len() {
            let depends_on = self.depends_on(place);
            let parallel_with = self.parallel_with(place);
            let Listed {
                raw, file, meta, ..
            } = &self.listed[place];
            let heading = meta.heading.as_ref().map(|(_, _, title)| title.clone());
            let titles = [Some(raw.title.clone()), heading, Some(raw.id.clone())];
            tasks.push(Task {
                id: raw.id.clone(),
                file: file.clone().unwrap_or_default(),
                title: titles
                    .into_iter()
                    .flatten()
                    .find(|title| !title.is_empty())
                    .unwrap_or_default(),
                depends_on,
                parallel_with,
                files: unique(meta.files.iter().map(|(_, path)| path.clone())),
                requires_ux_dx_review: meta.review,
                tick: raw.tick,
            });
        }
        self.contradictions(&tasks);
        tasks
    }

    fn depends_on(&mut self, own: usize) -> Vec<String> {
        let named = std::mem::take(&mut self.listed[own].meta.depends_on);
        let (id, file) = self.name_of(own);
        let mut found = Vec::new();
        for (line, other) in self.resolved(own, &named, "depends on") {
            let later = self.listed[other].phase > self.listed[own].phase;
            let other_id = self.listed[other].raw.id.clone();
            if other == own {
                self.fault(
                    &file,
                    line,
                    format!("task `{id}` depends on itself"),
                    "remove it",
                );
            } else if later {
                let message =
                    format!("task `{id}` depends on `{other_id}`, which is in a later phase");
                self.fault(
                    &file,
                    line,
                    message,
                    "move one of them: phases are worked on in order",
                );
            }
            found.push(other_id);
        }
        unique(found)
    }

    fn parallel_with(&mut self, own: usize) -> Vec<String> {
        let mut named = std::mem::take(&mut self.listed[own].meta.parallel_with);
        let (id, file) = self.name_of(own);
        let phase = self.listed[own].phase;
        let all = |said: &Said| {
            let lower = said.1.to_lowercase();
            lower == "all" || lower.starts_with("all ")
        };
        let mut found = Vec::new();
        if named.iter().any(all) {
            let others = self.listed.iter().enumerate();
            let beside = others.filter(|(place, task)| task.phase == phase && *place != own);
            found.extend(beside.map(|(_, task)| task.raw.id.clone()));
            named.retain(|said| !all(said));
        }
        for (line, other) in self.resolved(own, &named, "is parallel with") {
            if other == own {
                continue;
            }
            let other_id = self.listed[other].raw.id.clone();
            if self.listed[other].phase != phase {
                let message =
                    format!("task `{id}` is parallel with `{other_id}`, which is in another phase");
                self.fault(
                    &file,
                    line,
                    message,
                    "only tasks of the same phase can run in parallel",
                );
            }
            found.push(other_id);
        }
        unique(found)
    }

    /// The indexes of the tasks that are named; a range means those of its numbers that exist.
    fn resolved(&mut self, own: usize, named: &[Said], verb: &str) -> Vec<(usize, usize)> {
        let (id, file) = self.name_of(own);
        let mut found = Vec::new();
        for (line, text) in named {
            if let Some(place) = self.by_key.get(&ids::key(text)) {
                found.push((*line, *place));
                continue;
            }
            let numbers = ids::range(text).map(|(first, last)| first..=last);
            let in_range: Vec<usize> = numbers
                .into_iter()
                .flat_map(|all| all.take(MAX_TASKS))
                .filter_map(|number| self.by_key.get(&number.to_string()).copied())
                .filter(|place| *place != own)
                .collect();
            if in_range.is_empty() {
                let message =
                    format!("task `{id}` {verb} `{text}`, which is not a task of the plan");
                self.fault(
                    &file,
                    *line,
                    message,
                    "name tasks by their ids, or write `none`",
                );
            }
            found.extend(in_range.into_iter().map(|place| (*line, place)));
        }
        found
    }

    fn name_of(&self, place: usize) -> (String, String) {
        let task = &self.listed[place];
        let file = task.file.clone().unwrap_or_else(|| MASTER.to_owned());
        (task.raw.id.clone(), file)
    }

    /// Tasks that are declared parallel although one depends on the other.
    fn contradictions(&mut self, tasks: &[Task]) {
        for task in tasks {
            for other in &task.parallel_with {
                let back = tasks.iter().find(|one| &one.id == other);
                let waits = task.depends_on.contains(other)
                    || back.is_some_and(|one| one.depends_on.contains(&task.id));
                if waits {
                    let message = format!(
                        "tasks `{}` and `{other}` are declared parallel, but one depends on the other",
                        task.id
                    );
                    self.fault(&task.file, 0, message, "remove one of the two");
                }
            }
        }
    }

    fn cycles(&mut self, tasks: &[Task]) {
        let place: HashMap<&str, usize> = tasks
            .iter()
            .enumerate()
            .map(|(place, task)| (task.id.as_str(), place))
            .collect();
        let mut waiting: Vec<usize> = vec![0; tasks.len()];
        let mut needed_by: Vec<Vec<usize>> = vec![Vec::new(); tasks.len()];
        for (own, task) in tasks.iter().enumerate() {
            for other in task
                .depends_on
                .iter()
                .filter_map(|id| place.get(id.as_str()))
            {
                if *other != own {
                    waiting[own] += 1;
                    needed_by[*other].push(own);
                }
            }
        }
        let mut free: Vec<usize> = (0..tasks.len()).filter(|own| waiting[*own] == 0).collect();
        while let Some(own) = free.pop() {
            for &other in &needed_by[own] {
                waiting[other] -= 1;
                if waiting[other] == 0 {
                    free.push(other);
                }
            }
        }
        let stuck: Vec<&str> = (0..tasks.len())
            .filter(|own| waiting[*own] > 0)
            .map(|own| tasks[own].id.as_str())
            .collect();
        if !stuck.is_empty() {
            let message = format!(
                "these tasks depend on each other in a cycle: {}",
                stuck.join(", ")
            );
            self.fault(MASTER, 0, message, "remove one `Depends On` of the cycle");
        }
    }

    fn phases(&mut self, raw: &[RawPhase]) -> Vec<Phase> {
        let mut next = 0;
        raw.iter()
            .map(|phase| {
                let tasks: Vec<usize> = (next..next + phase.tasks.len()).collect();
                next += phase.tasks.len();
                Phase {
                    number: phase.number,
                    title: phase.title.clone(),
                    status: self.status(phase),
                    tasks,
                }
            })
            .collect()
    }

    /// The boxes decide; a phase whose status is skipped is not open either.
    fn status(&mut self, phase: &RawPhase) -> Tick {
        let open = phase.tasks.iter().find(|task| task.tick == Tick::Open);
        let says = phase
            .status
            .as_ref()
            .map(|status| (status.says, status.line));
        match (open, says) {
            (_, Some((Tick::Skipped, _))) => Tick::Skipped,
            (Some(task), Some((Tick::Done, line))) => {
                let message = format!(
                    "the status of phase {} is done, but task `{}` is open",
                    phase.number, task.id
                );
                self.fault(
                    MASTER,
                    line,
                    message,
                    "tick the task, or correct the status",
                );
                Tick::Open
            }
            (Some(_), _) => Tick::Open,
            (None, _) if phase.tasks.iter().any(|task| task.tick == Tick::Skipped) => Tick::Skipped,
            (None, _) => Tick::Done,
        }
    }
}

/// Whether a path leads out of the working folder.
fn escapes(path: &str) -> bool {
    let bytes = path.as_bytes();
    let drive = bytes.len() > 1 && bytes[0].is_ascii_alphabetic() && bytes[1] == b':';
    path.starts_with(['/', '~', '\\'])
        || drive
        || path.contains('\0')
        || path.split(['/', '\\']).any(|part| part == "..")
}

fn unique(all: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    all.into_iter()
        .filter(|one| seen.insert(one.clone()))
        .collect()
}
