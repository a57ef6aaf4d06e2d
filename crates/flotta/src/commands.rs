//! What each client command does: a request or two, and the answer shown.

use std::path::Path;

use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    apply, check,
    cli::{
        ApplyCommand, Connection, ContextCommand, ContextVerb, FleetCommand, FleetVerb, MemberCommand, MemberVerb,
        NewRun, Retry, RunCommand, RunVerb, StrategyCommand, StrategyVerb, Write,
    },
    client::{
        context::{Config, own_config_path, resolve, server},
        http::{Answer, Api, Request},
        resources::{Kind, fleet_body, member_body, run_body, skip_body, strategy_body, strategy_of},
    },
    failure::{Failure, Kind as Blame},
    output::{self, Format, say},
    retry, watch, why,
};

/// A client for what flags, environment and contexts say.
pub fn connect(connection: &Connection) -> Result<Api, Failure> {
    Api::new(resolve(connection, &Config::read(&own_config_path()?)?)?)
}

/// `flotta fleet`.
pub async fn fleet(command: FleetCommand) -> Result<(), Failure> {
    let api = connect(&command.connection)?;
    let format = command.connection.output;
    match command.verb {
        FleetVerb::Create { name, location, tags, write } => {
            put(&api, format, Kind::Fleet, name.as_str(), &fleet_body(&location, &tags), &write).await
        }
        FleetVerb::Show { name } => {
            let name = name.map_or_else(|| api.target.fleet().cloned(), Ok)?;
            show(&api, format, Kind::Fleet, name.as_str()).await
        }
        FleetVerb::List => list(&api, format, Kind::Fleet).await,
        FleetVerb::Delete { name, write } => delete(&api, Kind::Fleet, name.as_str(), &write).await,
    }
}

/// `flotta member`.
pub async fn member(command: MemberCommand) -> Result<(), Failure> {
    let api = connect(&command.connection)?;
    let format = command.connection.output;
    match command.verb {
        MemberVerb::Create { name, cluster_id, group, labels, write } => {
            let body = member_body(Some(&cluster_id), group.as_ref(), &labels);
            put(&api, format, Kind::Member, name.as_str(), &body, &write).await
        }
        MemberVerb::Update { name, group, labels, write } => {
            let what = format!("update member '{name}'");
            let body = member_body(None, group.as_ref(), &labels);
            let url = api.target.resource_url(Kind::Member, name.as_str())?;
            let request = Request { body: Some(&body), ..Request::new(&what, Method::PATCH, url) };
            output::show(format, Kind::Member, &api.write(request, &write).await?.body)
        }
        MemberVerb::Show { name } => show(&api, format, Kind::Member, name.as_str()).await,
        MemberVerb::List => list(&api, format, Kind::Member).await,
        MemberVerb::Delete { name, write } => delete(&api, Kind::Member, name.as_str(), &write).await,
    }
}

/// `flotta strategy`.
pub async fn strategy(command: StrategyCommand) -> Result<(), Failure> {
    let api = connect(&command.connection)?;
    let format = command.connection.output;
    match command.verb {
        StrategyVerb::Create { name, file, write } => {
            let strategy = strategy_of(apply::only_document(&apply::read(&file)?)?)?;
            put(&api, format, Kind::Strategy, name.as_str(), &strategy_body(strategy), &write).await
        }
        StrategyVerb::Show { name } => show(&api, format, Kind::Strategy, name.as_str()).await,
        StrategyVerb::List => list(&api, format, Kind::Strategy).await,
        StrategyVerb::Delete { name, write } => delete(&api, Kind::Strategy, name.as_str(), &write).await,
    }
}

/// `flotta run`.
pub async fn run(command: RunCommand) -> Result<(), Failure> {
    let api = connect(&command.connection)?;
    let format = command.connection.output;
    match command.verb {
        RunVerb::Create(new) => create_run(&api, format, &new).await,
        RunVerb::Check { name, part } => {
            let report = check::ask(&api, name.as_str(), part.asked()).await?;
            check::show(format, name.as_str(), &report)
        }
        RunVerb::Why { name, part } => why::why(&api, format, name.as_str(), &part).await,
        RunVerb::Show { name } => show_run(&api, format, name.as_str()).await,
        RunVerb::List => list(&api, format, Kind::Run).await,
        RunVerb::Start { name, write } => act(&api, format, name.as_str(), "start", None, &write).await,
        RunVerb::Stop { name, write } => act(&api, format, name.as_str(), "stop", None, &write).await,
        RunVerb::Skip(skip) => {
            let body = skip_body(&skip);
            act(&api, format, skip.name.as_str(), "skip", Some(&body), &skip.write).await
        }
        RunVerb::Retry(wanted) => retry_run(&api, format, &wanted).await,
        RunVerb::Delete { name, write } => delete(&api, Kind::Run, name.as_str(), &write).await,
        RunVerb::Watch { name, plain, interval } => {
            let style = if plain { watch::Style::Plain } else { watch::Style::Auto };
            watch::watch(&api, name.as_str(), interval, style).await
        }
    }
}

/// `flotta apply`.
pub async fn apply(command: ApplyCommand) -> Result<(), Failure> {
    let wanted = apply::parse(&apply::read(&command.file)?)?;
    let api = connect(&command.connection)?;
    let write = Write { no_wait: command.no_wait, ..Write::default() };
    let mut done = Vec::new();
    for wanted in &wanted {
        let outcome = apply::apply(&api, wanted, &write).await?;
        let (kind, name) = (wanted.kind.singular(), wanted.name.as_str());
        match command.connection.output {
            Format::Table => say(&format!("{kind} '{name}' {}", outcome.word()))?,
            _ => done.push(json!({"kind": wanted.kind.word(), "name": name, "outcome": outcome.word()})),
        }
    }
    match command.connection.output {
        Format::Table => Ok(()),
        format => say(&output::document(format, &done.into())?),
    }
}

/// `flotta context`.
pub fn context(command: ContextCommand) -> Result<(), Failure> {
    let path = own_config_path()?;
    let mut config = Config::read(&path)?;
    match command.verb {
        ContextVerb::Set { name, server: url, subscription, resource_group, fleet } => {
            url.as_deref().map(server).transpose()?;
            let context = config.contexts.entry(name.clone()).or_default();
            context.server = url.or(context.server.take());
            context.subscription = subscription.or(context.subscription.take());
            context.resource_group = resource_group.or(context.resource_group.take());
            context.fleet = fleet.or(context.fleet.take());
            // The first context is used at once; a further one when it is asked for.
            config.current.get_or_insert_with(|| name.clone());
            config.write(&path)?;
            say(&format!("context '{name}' is kept in {}", path.display()))
        }
        ContextVerb::Use { name } => {
            if !config.contexts.contains_key(&name) {
                return Err(config.unknown(&name));
            }
            config.current = Some(name.clone());
            config.write(&path)?;
            say(&format!("context '{name}' is used from now on"))
        }
        ContextVerb::List { output } => list_contexts(&config, output),
        ContextVerb::Show { connection } => show_context(&connection, &config),
    }
}

fn list_contexts(config: &Config, format: Format) -> Result<(), Failure> {
    if format != Format::Table {
        return say(&output::document(format, &json!(config))?);
    }
    if config.contexts.is_empty() {
        return say("no contexts yet: make one with `flotta context set NAME --server URL --fleet FLEET`");
    }
    let or = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".into());
    let rows = config.contexts.iter().map(|(name, context)| {
        let used = if config.current.as_ref() == Some(name) { "*" } else { "" };
        let fleet = context.fleet.as_ref().map(ToString::to_string);
        [
            used.to_owned(),
            name.to_string(),
            or(&context.server),
            or(&context.subscription),
            or(&context.resource_group),
            or(&fleet),
        ]
    });
    let head = ["USED", "NAME", "SERVER", "SUBSCRIPTION", "RESOURCE GROUP", "FLEET"];
    say(&output::grid(head, rows, output::width()))
}

fn show_context(connection: &Connection, config: &Config) -> Result<(), Failure> {
    let target = resolve(connection, config)?;
    let shown = json!({
        "context": target.context,
        "server": target.server.as_str().trim_end_matches('/'),
        "subscription": target.subscription,
        "resourceGroup": target.resource_group,
        "fleet": target.fleet,
        "apiVersion": target.api_version,
    });
    match connection.output {
        Format::Table => {
            let rows = shown.as_object().into_iter().flatten().map(|(key, value)| match value {
                Value::String(text) => [key.clone(), text.clone()],
                _ => [key.clone(), "-".into()],
            });
            say(&output::grid(["SETTING", "VALUE"], rows, output::width()))
        }
        format => say(&output::document(format, &shown)?),
    }
}

async fn show(api: &Api, format: Format, kind: Kind, name: &str) -> Result<(), Failure> {
    output::show(format, kind, &api.get(kind, name).await?)
}

async fn list(api: &Api, format: Format, kind: Kind) -> Result<(), Failure> {
    let what = format!("list {}", kind.plural());
    output::list(format, kind, &api.list(&what, api.target.list_url(kind)?).await?)
}

async fn put(api: &Api, format: Format, kind: Kind, name: &str, body: &Value, write: &Write) -> Result<(), Failure> {
    output::show(format, kind, &api.put(kind, name, body, write).await?.body)
}

async fn delete(api: &Api, kind: Kind, name: &str, write: &Write) -> Result<(), Failure> {
    let what = format!("delete {} '{name}'", kind.singular());
    let answer = api.write(Request::new(&what, Method::DELETE, api.target.resource_url(kind, name)?), write).await?;
    let was = match answer.status.as_u16() {
        204 => "was not there",
        202 if write.no_wait => "is being deleted",
        _ => "deleted",
    };
    say(&format!("{} '{name}' {was}", kind.singular()))
}

async fn act(
    api: &Api,
    format: Format,
    name: &str,
    action: &str,
    body: Option<&Value>,
    write: &Write,
) -> Result<(), Failure> {
    let Answer { body, .. } = api.act(Kind::Run, name, action, body, write).await?;
    // The answer shows the run as it was before, or is an operation; people want to see where it stands now.
    let stale = format == Format::Table || body.pointer("/properties/status").is_none();
    let run = if stale { api.get(Kind::Run, name).await? } else { body };
    output::show(format, Kind::Run, &run)
}

async fn show_run(api: &Api, format: Format, name: &str) -> Result<(), Failure> {
    if format != Format::Table {
        return show(api, format, Kind::Run, name).await;
    }
    watch::show(api, name).await
}

async fn create_run(api: &Api, format: Format, new: &NewRun) -> Result<(), Failure> {
    let id = new.strategy.as_deref().map(|name| api.target.strategy_id(name)).transpose()?;
    let stages = new.stages.as_deref().map(stages_of).transpose()?;
    let name = new.name.as_str();
    if new.dry_run {
        return dry_run(api, format, name, &run_body(new, id, stages)).await;
    }
    let created = api.put(Kind::Run, name, &run_body(new, id, stages), &new.write).await?;
    let planned = created.body.pointer("/properties/status/stages").is_some();
    if planned && output::members_ended(&created.body) == (0, 0) {
        anstream::eprintln!("warning: no member is in this run: `flotta member list` shows their groups and labels");
    }
    match new.start {
        true => act(api, format, name, "start", None, &Write { if_match: None, ..new.write.clone() }).await,
        false => output::show(format, Kind::Run, &created.body),
    }
}

async fn retry_run(api: &Api, format: Format, wanted: &Retry) -> Result<(), Failure> {
    let made = retry::make(api, wanted).await?;
    let name = made.get("name").and_then(Value::as_str).unwrap_or_default();
    if format == Format::Table {
        say(&retry::told(&wanted.name, &made))?;
    }
    match (wanted.start, format) {
        (true, _) => act(api, format, name, "start", None, &Write { if_match: None, ..wanted.write.clone() }).await,
        (false, Format::Table) => say(&format!("start it with `flotta run start {}`", output::clean(name))),
        (false, _) => output::show(format, Kind::Run, &made),
    }
}

async fn dry_run(api: &Api, format: Format, name: &str, body: &Value) -> Result<(), Failure> {
    let what = format!("check run '{name}'");
    let mut url = api.target.resource_url(Kind::Run, name)?;
    url.query_pairs_mut().append_pair("dryRun", "true");
    let answer = api.send(Request { body: Some(body), ..Request::new(&what, Method::PUT, url) }).await?;
    if answer.body.get("properties").is_some() {
        let cause = format!("the server does not know dry runs: it created run '{name}', and did not start it");
        return Err(Failure::new(Blame::Failed, format!("cannot {what}"), cause)
            .hint(format!("take it away with `flotta run delete {name}`, and ask a server of flotta")));
    }
    check::show(format, name, &answer.body)
}

/// Stages written on the command line, or in the file it names.
fn stages_of(text: &str) -> Result<Value, Failure> {
    match text.trim_start().starts_with(['[', '{']) {
        true => strategy_of(serde_json::from_str(text).map_err(|error| {
            Failure::new(Blame::Usage, "--stages takes a file or JSON", format!("the JSON is wrong: {error}"))
        })?),
        false => strategy_of(apply::only_document(&apply::read(Path::new(text))?)?),
    }
}
