//! One integration binary: real files, real processes, a fresh root for every test.
//!
//! - `harness`: the test bed, and nothing that checks a promise
//! - `props`: gates and unique words for tests of running agents
//! - `agents`: a provider's life: start, environment, limits, output, and nothing left of it
//! - `authors`: `check`, `graph`, `schema`: workflows good, bad and hostile
//! - `bad_input`: tasks, agents and settings that are not valid: rejected, with reason and place
//! - `chains`: answers that go on: `then`, people, recordings
//! - `confine`: scopes, violations and limits as a person declares them
//! - `crash`: `kill -9` and I/O errors at every point of the order on disk
//! - `docs`: the README and `docs/`: every command is run, every table compared with the program
//! - `documents`: locked decisions and the canonical document, and agents that lie
//! - `dropping`: how tasks come, go and change under our feet: never half, never twice, never lost
//! - `escapes`: what an agent could try to get at more than it was given
//! - `folders`: folders that are missing, removed, read-only, elsewhere or full
//! - `house`: where code may stand in `src/`, and what it may touch there
//! - `hygiene`: nothing that is printed acts on a terminal, no line of JSON is broken
//! - `machines`: the shipped workflows, with every rule of theirs as a case
//! - `people`: approvals, questions, follow-ups and singletons, by command and by `mv`
//! - `power`: power cuts at every point, on a file system of their own (root only)
//! - `process`: the process room seen from outside: the guard, descriptors, signals
//! - `providers`: the real programs, played by scripts: answers, refusals, flags, prompts
//! - `readers`: what every reader promises about any bytes; shared with the fuzz targets
//! - `rules`: the tables of rules in `tests/fixtures/rules/`, each held by tests that there are
//! - `runs`: workflows through the mailbox, killed anywhere
//! - `scale`: many tasks: all done, in order, in bounded memory
//! - `secrets`: passed by environment, and found nowhere else
//! - `sending`: `send`, `cancel`, `retry`, as a person types them
//! - `shipped`: the workflows and the schema that come with orch
//! - `signals`: watchers that are stopped or killed with agents running
//! - `strays`: what lies in an inbox and is not a task, and folders that lead elsewhere
//! - `waits`: steps that wait for files: what wakes them, what ends them, and what they cost
//! - `watchers`: several watchers on one root, and watchers inside agents
//! - `workflows`: runs as a person starts, stops, resumes and examines them

mod actions;
mod agents;
mod authors;
mod bad_input;
mod chains;
mod confine;
mod crash;
mod docs;
mod documents;
mod dropping;
mod escapes;
mod folders;
mod harness;
mod house;
mod hygiene;
mod machines;
mod people;
mod power;
mod process;
mod props;
mod providers;
mod readers;
mod rules;
mod runs;
mod scale;
mod secrets;
mod sending;
mod shipped;
mod signals;
mod strays;
mod waits;
mod watchers;
mod workflows;
