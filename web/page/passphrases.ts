// Which passphrases are too easy to guess for a secret key that is kept in this browser: app/client/passphrases.py.

const FEWEST_CHARACTERS = 12;
const FEWEST_DIFFERENT = 5;
const LONGEST_PERIOD = 16; // of a text that repeats itself
const LONGEST_LOOK = 100; // characters that are looked for words
const SHORTEST_RUN = 3; // of keys side by side that count as one
const MOST_WORDS = 3;
const RUNS = [
  "abcdefghijklmnopqrstuvwxyz",
  "01234567890",
  "qwertyuiop",
  "qwertzuiop",
  "asdfghjkl",
  "zxcvbnm",
  "yxcvbnm",
  "azerty",
  "1q2w3e4r5t6y",
].flatMap((row) => [row, [...row].reverse().join("")]);
const PLAIN: Readonly<Record<string, string>> = { 0: "o", 1: "i", 3: "e", 4: "a", 5: "s", 7: "t", "@": "a", $: "s", "!": "i" };

// What guessing begins with, in the form of `lettersOf`.
const COMMON = new Set(
  `
    abracadabra access account admin administrator alexander america amanda andrea andrew angel anonymous apple april arsenal august austin
    autumn baby bailey banana barcelona baseball basketball batman beautiful berlin biteme blink blue buster butterfly carlos changeme charlie
    cheese chelsea chicago chocolate christmas cloakwork computer cookie correct correcthorsebatterystaple cowboys daniel david december default
    diamond dolphin donald dragon eagles elephant encrypted encryption england eminem family fender ferrari flower football forever freedom
    friday friend friends fuckyou gandalf garfield george ginger google guest hannah happy harley heaven hello helloworld hockey hottie
    house hunter iceman idontknow iloveyou jackson jasmine jennifer jessica jesus johnson jordan joshua justin key killer king kitty
    lakers letmein liverpool login london love lovely loveyou lucky madison maggie manchester manager march martin master matrix matthew
    maverick melissa mercedes merlin michael michelle mickey midnight monday monkey monster morgan mother mustang mypassword myspace
    mysecret naruto nicole ninja november october office orange pass passphrase password passwort pepper phoenix player please pokemon
    princess private purple queen rainbow ranger rangers robert root samantha samsung saturday scooter secret secretkey security september
    server service shadow silver slipknot snoopy soccer sophie spiderman starwars steelers stephanie summer sunday sunflower sunshine
    superman superstar support sweet system taylor temp temppassword test tester testing thomas thunder tigger tinkerbell trustno trustnoone
    turtle twitter unknown user username vanessa victoria welcome whatever william windows winner winter wizard world yankees yellow zaq
    my our the this is new old one two for a i me you
`
    .trim()
    .split(/\s+/),
);

/** Why a passphrase is weak; null: it is not. Nothing of it is in the text. */
export function weakness(passphrase: string): string | null {
  const characters = [...passphrase];
  if (characters.length < FEWEST_CHARACTERS) return `it has fewer than ${FEWEST_CHARACTERS} characters`;
  if (new Set(characters).size < FEWEST_DIFFERENT) return `it has fewer than ${FEWEST_DIFFERENT} different characters`;
  for (let period = 1; period <= Math.min(LONGEST_PERIOD, Math.floor(characters.length / 2)); ++period)
    if (characters.every((character, i) => character === characters[i % period])) return "it repeats itself";
  const lower = characters.slice(0, LONGEST_LOOK).join("").toLowerCase();
  const rest = withoutRuns(lower);
  if (new Set(rest).size < FEWEST_DIFFERENT && rest.length < FEWEST_CHARACTERS) return "it is a row of keys or numbers";
  if (isOfCommonWords(lettersOf(lower)) || isOfCommonWords(lettersOf(rest))) return "it is made of words that are guessed first";
  return null;
}

/** Letters alone, with the usual digits and signs in place of letters read as these. */
function lettersOf(text: string): string {
  const stripped = text.replace(/^[0-9!?.,_ #*+$&%-]+|[0-9!?.,_ #*+$&%-]+$/g, "");
  return [...stripped]
    .map((letter) => PLAIN[letter] ?? letter)
    .filter((letter) => /\p{L}/u.test(letter))
    .join("");
}

/** At most three of them, one after the other. */
function isOfCommonWords(text: string): boolean {
  let ends = new Set([0]);
  for (let count = 0; count < MOST_WORDS; ++count) {
    const next = new Set<number>();
    for (const start of ends) for (let end = start + 1; end <= text.length; ++end) if (COMMON.has(text.slice(start, end))) next.add(end);
    if (next.has(text.length) && text !== "") return true;
    ends = next;
  }
  return false;
}

/** Without keys that are side by side, forwards or backwards. */
function withoutRuns(text: string): string {
  let [rest, place] = ["", 0];
  while (place < text.length) {
    let length = 0;
    for (const row of RUNS)
      for (let n = SHORTEST_RUN; n <= Math.min(row.length, text.length - place); ++n)
        if (row.includes(text.slice(place, place + n))) length = Math.max(length, n);
    if (length === 0) rest += text[place] as string;
    place += length || 1;
  }
  return rest;
}
