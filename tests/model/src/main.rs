//! Checks the rules of kraftlib's consensus on a model of their own: `python dev.py model --help`.

mod log;
mod rules;
mod state;
mod story;
mod world;
mod worlds;

use std::process::ExitCode;
use std::time::Instant;

use stateright::{Checker, Expectation, HasDiscoveries, Model};

use rules::{Rules, PLANTS};
use world::World;

const HELP: &str = "\
Checks the vote, Fetch, reconfiguration and lost-vote rules on a model of their own, state by state.

    (nothing)         the rules as they are, in every world, then each planted bug: it must be found
    --right           only the rules as they are
    --plant NAME      only this bug, and how it shows
    --world NAME      only this world
    --long            larger worlds: an hour
    --threads N       2 unless said otherwise
    --output json     one line of JSON for each world";

struct Options {
    plant: Option<String>,
    world: Option<String>,
    right: bool,
    long: bool,
    threads: usize,
    json: bool,
}

fn options() -> Result<Options, String> {
    let mut options = Options {
        plant: None,
        world: None,
        right: false,
        long: false,
        threads: 2,
        json: false,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--right" => options.right = true,
            "--long" => options.long = true,
            "--plant" => options.plant = Some(value()?),
            "--world" => options.world = Some(value()?),
            "--threads" => {
                options.threads = value()?.parse().map_err(|_| "--threads needs a number")?
            }
            "--output" => options.json = value()? == "json",
            _ => return Err(HELP.to_string()),
        }
    }
    let known: Vec<&str> = PLANTS.iter().map(|plant| plant.name).collect();
    if let Some(name) = options
        .plant
        .as_ref()
        .filter(|name| !known.contains(&name.as_str()))
    {
        return Err(format!(
            "no planted bug is called {name}; there are {}",
            known.join(", ")
        ));
    }
    let names: Vec<&str> = worlds::worlds(Rules::with(""), false)
        .iter()
        .map(|world| world.name)
        .collect();
    if let Some(name) = options
        .world
        .as_ref()
        .filter(|name| !names.contains(&name.as_str()))
    {
        return Err(format!(
            "no world is called {name}; there are {}",
            names.join(", ")
        ));
    }
    Ok(options)
}

/// Search one world; say what was found. True: something that must hold does not, or nothing ever happened.
fn search(world: World, plant: &str, options: &Options) -> bool {
    let (name, about, began) = (world.name, world.about, Instant::now());
    let threads = if plant.is_empty() { options.threads } else { 1 }; // one thread finds the shortest way
    let checker = world
        .checker()
        .threads(threads)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let mut discoveries: Vec<_> = checker.discoveries().into_iter().collect();
    discoveries.sort_by_key(|(property, _)| *property);
    let hopes = |property: &str| checker.model().property_named(property) == Expectation::Sometimes;
    let broken: Vec<_> = discoveries
        .iter()
        .filter(|(property, _)| !hopes(property))
        .collect();
    let reached = discoveries.len() - broken.len();
    let missed = broken.is_empty() && reached < checker.model().hopes();
    let seconds = began.elapsed().as_secs_f64();
    let (states, unique, depth) = (
        checker.state_count(),
        checker.unique_state_count(),
        checker.max_depth(),
    );
    let violation = broken.first().map_or(
        if missed { "nothing happens" } else { "" },
        |(property, _)| property,
    );
    if options.json {
        let trace: Vec<String> = broken
            .first()
            .map_or(vec![], |(_, path)| story::lines(path));
        let quoted: Vec<String> = trace.iter().map(|line| format!("{line:?}")).collect();
        println!(
            "{{\"world\": {name:?}, \"plant\": {plant:?}, \"states\": {unique}, \"steps\": {states}, \"depth\": {depth}, \
             \"seconds\": {seconds:.1}, \"violation\": {violation:?}, \"trace\": [{}]}}",
            quoted.join(", ")
        );
        return !violation.is_empty();
    }
    println!("{name}: {about}\n  {unique} states, {states} steps, depth {depth}, {seconds:.1} s");
    if !violation.is_empty() {
        println!("  VIOLATED: {violation}");
    }
    if let Some((_, path)) = broken.first() {
        for (number, line) in story::lines(path).iter().enumerate() {
            println!("  {number:3} {line}");
        }
    }
    !violation.is_empty()
}

fn chosen(plant: &str, world: Option<&str>, options: &Options) -> Vec<World> {
    let all = worlds::worlds(Rules::with(plant), options.long);
    all.into_iter()
        .filter(|each| world.map_or(true, |name| name == each.name))
        .collect()
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(text) => {
            eprintln!("{text}");
            return ExitCode::from(2);
        }
    };
    let mut bad = vec![];
    if options.plant.is_none() {
        for world in chosen("", options.world.as_deref(), &options) {
            let name = world.name;
            if search(world, "", &options) {
                bad.push(format!("{name} does not hold"));
            }
        }
    }
    for plant in PLANTS.iter() {
        let is_wanted = match &options.plant {
            Some(name) => name == plant.name,
            None => {
                !options.right
                    && options
                        .world
                        .as_deref()
                        .map_or(true, |name| name == plant.world)
            }
        };
        if !is_wanted {
            continue;
        }
        if !options.json {
            println!("\nplanted: {}: {}", plant.name, plant.about);
        }
        let world = options.world.as_deref().unwrap_or(plant.world);
        if !chosen(plant.name, Some(world), &options)
            .into_iter()
            .any(|world| search(world, plant.name, &options))
        {
            bad.push(format!(
                "planted bug {} is not found in {world}",
                plant.name
            ));
        }
    }
    for line in &bad {
        eprintln!("dev.py model: {line}");
    }
    ExitCode::from(u8::from(!bad.is_empty()))
}
