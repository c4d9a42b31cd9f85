//! A seeded generator of small English stories and sums.
//!
//! It stands in for a data set, so that the embedded run trains without a download: enough
//! structure to be worth learning (names that stay with their pronouns, objects that are found
//! again, articles, plurals, sums that come out right), from a grammar small enough to read here.
//! The bytes are a function of (seed, length) alone, on every machine.

use crate::base::{Digest, Stream};

/// `bytes` bytes of documents, each ended by an empty line; the last one may be cut.
pub fn stories(seed: u64, bytes: u64) -> Vec<u8> {
    let digest = Digest::of(&seed.to_le_bytes());
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    let mut teller = Teller { random: Stream::new(&digest, "stories/1"), text: String::new() };
    teller.text.reserve(bytes.saturating_add(4096));
    while teller.text.len() < bytes {
        if teller.random.below(8) == 0 {
            teller.sums()
        } else {
            teller.story()
        }
        teller.text.push('\n');
    }
    let mut text = teller.text.into_bytes();
    text.truncate(bytes);
    text
}

/// A character: name, subject pronoun, object pronoun, possessive.
type Person = (&'static str, &'static str, &'static str, &'static str);

const PEOPLE: &[Person] = &[
    ("Anna", "she", "her", "her"),
    ("Ben", "he", "him", "his"),
    ("Clara", "she", "her", "her"),
    ("David", "he", "him", "his"),
    ("Emma", "she", "her", "her"),
    ("Finn", "he", "him", "his"),
    ("Grace", "she", "her", "her"),
    ("Hugo", "he", "him", "his"),
    ("Ida", "she", "her", "her"),
    ("Jack", "he", "him", "his"),
    ("Lucy", "she", "her", "her"),
    ("Max", "he", "him", "his"),
    ("Nora", "she", "her", "her"),
    ("Oscar", "he", "him", "his"),
    ("Rosa", "she", "her", "her"),
    ("Tom", "he", "him", "his"),
];
const KINDS: &[&str] = &["little", "brave", "quiet", "kind", "clever", "happy", "young", "old"];
const ANIMALS: &[&str] =
    &["dog", "cat", "owl", "horse", "rabbit", "duck", "fox", "elephant", "bear", "goat"];
/// A place, with the preposition that leads to one being there.
const PLACES: &[&str] = &[
    "in the garden",
    "in the forest",
    "by the river",
    "at the market",
    "on the hill",
    "in the barn",
    "at the school",
    "by the sea",
    "in the kitchen",
    "under the bridge",
];
const THINGS: &[&str] = &[
    "ball", "key", "hat", "book", "apple", "lamp", "kite", "egg", "coin", "umbrella", "boat",
    "basket", "drum", "orange", "ring",
];
const COLOURS: &[&str] = &["red", "blue", "green", "yellow", "old", "orange", "small", "golden"];
const HIDING: &[&str] =
    &["under a tree", "behind a stone", "in a box", "under the bed", "on the roof"];
const WEATHERS: &[(&str, &str)] = &[
    ("It was raining", "got wet"),
    ("It was snowing", "felt cold"),
    ("The sun was shining", "felt warm"),
    ("The wind was blowing", "held on tight"),
];
const FEELINGS: &[&str] = &["happy", "proud", "tired", "glad"];
const ENDINGS: &[&str] = &[
    "That night {N} slept well.",
    "It was a good day for {N}.",
    "From then on they were friends.",
    "{S} never forgot that day.",
    "Then {N} went home.",
];

struct Teller {
    random: Stream,
    text: String,
}

/// Who and what a story is about.
struct Cast {
    hero: Person,
    friend: Person,
    animal: &'static str,
    colour: &'static str,
    thing: &'static str,
    place: &'static str,
}

/// "a" or "an", as the word after it wants.
fn article(word: &str) -> &'static str {
    if word.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" }
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

impl Cast {
    /// Fills a pattern: {N} the hero, {S} and {s} the pronoun, {o} him, {p} his; {F} the friend,
    /// {G} and {g} that pronoun, {q} its possessive; {A} the animal and {T} the thing with its
    /// colour, {aA} and {aT} with an article; {W} the place.
    fn fill(&self, pattern: &str, text: &mut String) {
        let mut rest = pattern;
        while let Some((before, after)) = rest.split_once('{') {
            text.push_str(before);
            let Some((slot, after)) = after.split_once('}') else { return };
            self.slot(slot, text);
            rest = after;
        }
        text.push_str(rest);
        text.push(' ');
    }

    fn slot(&self, slot: &str, text: &mut String) {
        match slot {
            "N" => text.push_str(self.hero.0),
            "S" => text.push_str(&capital(self.hero.1)),
            "s" => text.push_str(self.hero.1),
            "o" => text.push_str(self.hero.2),
            "p" => text.push_str(self.hero.3),
            "F" => text.push_str(self.friend.0),
            "G" => text.push_str(&capital(self.friend.1)),
            "g" => text.push_str(self.friend.1),
            "q" => text.push_str(self.friend.3),
            "A" => text.push_str(self.animal),
            "aA" => text.extend([article(self.animal), " ", self.animal]),
            "T" => text.extend([self.colour, " ", self.thing]),
            "aT" => text.extend([article(self.colour), " ", self.colour, " ", self.thing]),
            _ => text.push_str(self.place),
        }
    }
}

impl Teller {
    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.random.below(from.len() as u64) as usize]
    }

    fn cast(&mut self) -> Cast {
        let hero = self.random.below(PEOPLE.len() as u64) as usize;
        // Somebody else: a step of 1 to all but one around the circle.
        let step = 1 + self.random.below(PEOPLE.len() as u64 - 1) as usize;
        Cast {
            hero: PEOPLE[hero],
            friend: PEOPLE[(hero + step) % PEOPLE.len()],
            animal: self.pick(ANIMALS),
            colour: self.pick(COLOURS),
            thing: self.pick(THINGS),
            place: self.pick(PLACES),
        }
    }

    fn say(&mut self, cast: &Cast, pattern: &str) {
        cast.fill(pattern, &mut self.text);
    }

    fn story(&mut self) {
        let cast = self.cast();
        self.opening(&cast);
        match self.random.below(5) {
            0 => self.lost(&cast),
            1 => self.shared(&cast),
            2 => self.helped(&cast),
            3 => self.counted(&cast),
            _ => self.made(&cast),
        }
        let ending = self.pick(ENDINGS);
        self.say(&cast, ending);
        self.text.pop();
        self.text.push('\n');
    }

    fn opening(&mut self, cast: &Cast) {
        let kind = self.pick(KINDS);
        let who = format!(
            "{} {kind} {}",
            article(kind),
            if cast.hero.1 == "she" { "girl" } else { "boy" }
        );
        match self.random.below(3) {
            0 => self.say(cast, &format!("Once there was {who} called {{N}}.")),
            1 => self.say(cast, &format!("{{N}} was {who}.")),
            _ => self.say(cast, &format!("One day {who} named {{N}} was {{W}}.")),
        }
        if self.random.below(2) == 0 {
            let (weather, effect) = self.pick(WEATHERS);
            self.say(cast, &format!("{weather} and {{s}} {effect}."));
        }
    }

    fn lost(&mut self, cast: &Cast) {
        let hiding = self.pick(HIDING);
        self.say(cast, "{N} had {aT}, but {s} lost it {W}.");
        match self.random.below(2) {
            0 => self.say(cast, "{S} looked for it all day and was sad."),
            _ => self.say(cast, "\"Where is my {T}?\" said {N}."),
        }
        match self.random.below(2) {
            0 => self.say(cast, &format!("Then {{p}} friend {{F}} found the {{T}} {hiding}.")),
            _ => self.say(cast, &format!("Then {{aA}} came and showed {{o}} the {{T}} {hiding}.")),
        }
        self.feel(cast);
    }

    fn shared(&mut self, cast: &Cast) {
        self.say(cast, "{N} met {F} {W}.");
        self.say(cast, "{F} wanted to have the {T}, but it was {N}'s.");
        match self.random.below(2) {
            0 => self.say(cast, "\"We can share it,\" said {N}, and they took turns."),
            _ => self.say(cast, "{N} gave the {T} to {F}, and {g} said thank you."),
        }
        self.feel(cast);
    }

    fn helped(&mut self, cast: &Cast) {
        self.say(cast, "{N} saw {aA} {W}.");
        match self.random.below(3) {
            0 => self.say(cast, "The {A} was hungry, so {s} gave it some bread."),
            1 => self.say(cast, "The {A} was stuck, so {s} called {F} and they pulled it out."),
            _ => self.say(cast, "The {A} was afraid, but {N} was kind to it."),
        }
        self.say(cast, "The {A} thanked {o} with {aT}.");
        self.feel(cast);
    }

    fn counted(&mut self, cast: &Cast) {
        let (had, more) = (2 + self.random.below(8), 2 + self.random.below(8));
        let thing = cast.thing;
        self.say(cast, &format!("{{N}} had {had} {thing}s and {{F}} had {more} {thing}s."));
        self.say(cast, "They put them all into one bag.");
        self.say(cast, &format!("Now there were {} {thing}s in the bag.", had + more));
        self.feel(cast);
    }

    fn made(&mut self, cast: &Cast) {
        self.say(cast, "{N} and {F} wanted to make {aT} for the {A}.");
        self.say(cast, "{N} worked {W}, and {F} brought {q} tools.");
        match self.random.below(2) {
            0 => self.say(cast, "When they were done, the {A} liked the {T} very much."),
            _ => self.say(cast, "The first {T} broke, but they tried again and it worked."),
        }
        self.feel(cast);
    }

    fn feel(&mut self, cast: &Cast) {
        let feeling = self.pick(FEELINGS);
        match self.random.below(3) {
            0 => self.say(cast, &format!("{{N}} was {feeling}.")),
            1 => self.say(cast, &format!("{{N}} and {{F}} were {feeling}.")),
            _ => {}
        }
    }

    fn sums(&mut self) {
        for _ in 0..3 + self.random.below(6) {
            let (a, b) = (self.random.below(21), self.random.below(21));
            let line = match self.random.below(3) {
                0 => format!("{} - {a} = {b}.\n", a + b),
                _ => format!("{a} + {b} = {}.\n", a + b),
            };
            self.text.push_str(&line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(seed: u64, bytes: u64) -> String {
        String::from_utf8(stories(seed, bytes)).unwrap()
    }

    #[test]
    fn the_text_is_a_function_of_seed_and_length() {
        let long = stories(1, 100_000);
        assert_eq!(long.len(), 100_000);
        assert_eq!(stories(1, 5_000), long[..5_000]);
        assert_ne!(stories(2, 5_000), long[..5_000]);
        assert_eq!(Digest::of(&long).to_string(), GOLDEN);
    }

    /// Changing the grammar changes every run's data: a new label, and a line in the change log.
    const GOLDEN: &str = "59e26a13b705eff778c5f50b123b19b5da8a9ded85ce282a36dcfe7ebdd59bc8";

    #[test]
    fn sums_are_right() {
        let text = text(3, 200_000);
        let mut sums = 0;
        for line in text.lines().filter(|line| line.contains(" = ") && line.ends_with('.')) {
            let words: Vec<&str> = line.trim_end_matches('.').split(' ').collect();
            let number = |at: usize| words[at].parse::<i64>().unwrap();
            let sign = if words[1] == "-" { -1 } else { 1 };
            assert_eq!(number(0) + sign * number(2), number(4), "{line}");
            sums += 1;
        }
        assert!(sums > 500, "{sums}");
    }

    #[test]
    fn stories_are_whole_sentences() {
        let text = text(4, 200_000);
        assert!(!text.contains(['{', '}']) && !text.contains("  ") && !text.contains(" \n"));
        let documents: Vec<&str> = text.split("\n\n").collect();
        assert!(documents.len() > 500);
        for document in &documents[..documents.len() - 1] {
            assert!(document.ends_with('.'), "{document}");
        }
        for wrong in [" a elephant", " a owl", " an red", " a old", " a orange", " an blue"] {
            assert!(!text.contains(wrong), "{wrong}");
        }
    }
}
