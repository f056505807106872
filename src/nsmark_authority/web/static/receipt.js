// Checks a receipt in the browser: nothing is sent anywhere. What it checks is what
// nsmark_authority.receipt checks, but for the time stamp; it says so.
"use strict";

(() => {
  const FORMAT = "nsmark/receipt/1";
  const MAX_PROOF = 63;
  const SPKI_PREFIX = "302a300506032b6570032100"; // Ed25519, RFC 8410
  const BY_AUTHORITY = ["publication", "admission", "ruling"];
  const TYPE = /^application\/vnd\.nsmark\.([a-z]+)\.v1\+json$/;
  const MARKS = { passed: "✓ holds", failed: "✗ fails", unchecked: "? not checked" };
  const MEMBERS = {
    format: "string", authority: "string", public_key: "string", entry: "string", index: "number",
    proof: "object", checkpoint: "string", token: "string", roots: "object", local_time: "boolean",
  };

  const form = document.getElementById("check");
  const input = document.getElementById("receipt");
  const drop = document.getElementById("drop");
  const section = document.getElementById("browser");
  const summary = document.getElementById("summary");
  const steps = document.getElementById("steps");
  const found = document.getElementById("found");

  class Refusal extends Error {}
  class Unable extends Error {}

  // --- Bytes. ---

  const utf8 = (text) => new TextEncoder().encode(text);
  const hex = (octets) => Array.from(octets, (octet) => octet.toString(16).padStart(2, "0")).join("");
  const same = (one, other) => hex(one) === hex(other);
  const join = (...parts) => {
    const joined = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
    let offset = 0;
    for (const part of parts) {
      joined.set(part, offset);
      offset += part.length;
    }
    return joined;
  };
  const sha256 = async (...parts) =>
    new Uint8Array(await crypto.subtle.digest("SHA-256", join(...parts)));

  const decodeBase64 = (text, what) => {
    let binary;
    try {
      binary = atob(text);
    } catch {
      throw new Refusal(`The ${what} is not in base64.`);
    }
    if (btoa(binary) !== text) throw new Refusal(`The ${what} is not in plain base64.`);
    return Uint8Array.from(binary, (character) => character.charCodeAt(0));
  };

  // --- JSON: ours is written in one way only (RFC 8785). ---

  const canonical = (value) => {
    if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
    if (value === null || typeof value !== "object") return JSON.stringify(value);
    const members = Object.keys(value).sort();
    return `{${members.map((name) => `${JSON.stringify(name)}:${canonical(value[name])}`).join(",")}}`;
  };
  const parseObject = (text, what) => {
    let value;
    try {
      value = JSON.parse(text);
    } catch {
      throw new Refusal(`The ${what} is no JSON.`);
    }
    if (value === null || typeof value !== "object" || Array.isArray(value)) {
      throw new Refusal(`The ${what} is no JSON object.`);
    }
    return value;
  };
  const parseCanonical = (text, what) => {
    const value = parseObject(text, what);
    if (canonical(value) !== text) throw new Refusal(`The ${what} is not in canonical form.`);
    return value;
  };

  // --- Keys and signatures. ---

  const readKey = (pem) => {
    const match = /^-----BEGIN PUBLIC KEY-----\n([A-Za-z0-9+/=]+)\n-----END PUBLIC KEY-----\n$/.exec(pem);
    const der = match === null ? new Uint8Array() : decodeBase64(match[1], "public key");
    if (der.length !== 44 || hex(der.subarray(0, 12)) !== SPKI_PREFIX) {
      throw new Refusal("A public key is not one of Ed25519 in PEM form.");
    }
    return der.slice(12);
  };
  const verifies = async (raw, signature, message) => {
    let key;
    try {
      key = await crypto.subtle.importKey("raw", raw, { name: "Ed25519" }, false, ["verify"]);
    } catch {
      throw new Unable("This browser cannot check Ed25519 signatures.");
    }
    return crypto.subtle.verify({ name: "Ed25519" }, key, signature, message);
  };

  // --- The parts of a receipt. ---

  const readReceipt = async (file) => {
    if (file.size > Number(form.dataset.max)) throw new Refusal("The file is too large for a receipt.");
    let text;
    try {
      text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(await file.arrayBuffer());
    } catch {
      throw new Refusal("The file cannot be read as UTF-8 text.");
    }
    const receipt = parseObject(text, "file");
    if (receipt.format !== FORMAT) throw new Refusal(`The file is no receipt of the form ${FORMAT}.`);
    for (const [name, type] of Object.entries(MEMBERS)) {
      if (typeof receipt[name] !== type) throw new Refusal(`The receipt’s member ${name} is missing or of another type.`);
    }
    if (Object.keys(receipt).length !== Object.keys(MEMBERS).length) {
      throw new Refusal("The receipt has members that receipts do not have.");
    }
    const isList = (value) => Array.isArray(value) && value.every((each) => typeof each === "string");
    if (!isList(receipt.proof) || receipt.proof.length > MAX_PROOF || !isList(receipt.roots)) {
      throw new Refusal("The receipt’s proof or roots are no lists of texts.");
    }
    if (!Number.isSafeInteger(receipt.index) || receipt.index < 0) {
      throw new Refusal("The receipt’s index is no place in a log.");
    }
    return receipt;
  };

  const readStatement = (receipt) => {
    const envelope = parseCanonical(receipt.entry, "entry");
    const signatures = envelope.signatures;
    const isWhole = typeof envelope.payload === "string" && typeof envelope.payloadType === "string"
      && Array.isArray(signatures) && signatures.length === 1
      && typeof signatures[0].sig === "string" && typeof signatures[0].keyid === "string";
    if (!isWhole) throw new Refusal("The entry is no envelope with one signature.");
    const payload = decodeBase64(envelope.payload, "payload");
    let text;
    try {
      text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(payload);
    } catch {
      throw new Refusal("The statement is no UTF-8 text.");
    }
    const kind = TYPE.exec(envelope.payloadType);
    if (kind === null) throw new Refusal("The entry is of an unknown kind.");
    const statement = parseCanonical(text, "statement");
    if (statement.authority !== receipt.authority) {
      throw new Refusal("The statement was made to another authority.");
    }
    const type = utf8(envelope.payloadType);
    return {
      kind: kind[1],
      statement,
      keyId: signatures[0].keyid,
      signature: decodeBase64(signatures[0].sig, "signature"),
      message: join(
        utf8(`DSSEv1 ${type.length} `), type, utf8(` ${payload.length} `), payload),
    };
  };

  const readCheckpoint = (note) => {
    const split = note.indexOf("\n\n");
    if (split < 0 || !note.endsWith("\n")) throw new Refusal("The checkpoint is not signed, or cut off.");
    const body = note.slice(0, split + 1);
    const lines = body.slice(0, -1).split("\n");
    if (lines.length < 3 || !/^(0|[1-9][0-9]{0,15})$/.test(lines[1])) {
      throw new Refusal("The checkpoint has no origin, size and root.");
    }
    const signatures = note.slice(split + 2, -1).split("\n").map((line) => {
      const match = /^\u2014 (\S+) (\S+)$/.exec(line);
      if (match === null) throw new Refusal("A signature of the checkpoint is malformed.");
      const octets = decodeBase64(match[2], "checkpoint’s signature");
      return { name: match[1], keyId: octets.slice(0, 4), signature: octets.slice(4) };
    });
    return {
      origin: lines[0], size: BigInt(lines[1]), root: decodeBase64(lines[2], "root"),
      message: utf8(body), signatures,
    };
  };

  // RFC 9162, 2.1.3.2.
  const climb = async (leaf, index, size, proof) => {
    if (index >= size) throw new Refusal("The log that was signed is too small to hold the entry.");
    let node = index;
    let last = size - 1n;
    let hash = leaf;
    for (const sibling of proof) {
      if (last === 0n) throw new Refusal("The proof is too long.");
      if ((node & 1n) === 1n || node === last) {
        hash = await sha256(Uint8Array.of(1), sibling, hash);
        while (node !== 0n && (node & 1n) === 0n) {
          node >>= 1n;
          last >>= 1n;
        }
      } else {
        hash = await sha256(Uint8Array.of(1), hash, sibling);
      }
      node >>= 1n;
      last >>= 1n;
    }
    if (last !== 0n) throw new Refusal("The proof is too short.");
    return hash;
  };

  // --- The checks, in their order. Each returns what it found. ---

  const CHECKS = [
    ["The file is a receipt", async (state) => {
      state.receipt = await readReceipt(state.file);
      return `Of the log ${visible(state.receipt.authority)}.`;
    }],
    ["It is one of this authority’s", async ({ receipt }) => {
      if (receipt.public_key !== form.dataset.key || receipt.authority !== form.dataset.name) {
        throw new Refusal("It names another authority or another key than this one’s. Check it there.");
      }
      return "It names this authority’s key.";
    }],
    ["The statement is signed by whoever made it", async (state) => {
      const { receipt } = state;
      state.entry = utf8(receipt.entry);
      state.entryId = hex(await sha256(state.entry));
      const said = readStatement(receipt);
      Object.assign(state, { kind: said.kind, statement: said.statement });
      const pem = BY_AUTHORITY.includes(said.kind) ? receipt.public_key : said.statement.public_key;
      const raw = readKey(typeof pem === "string" ? pem : "");
      state.fingerprint = hex(await sha256(raw));
      if (said.keyId !== state.fingerprint || !(await verifies(raw, said.signature, said.message))) {
        throw new Refusal("The signature does not fit the statement.");
      }
      return `A ${said.kind}, signed by the key ${state.fingerprint.slice(0, 16)}…`;
    }],
    ["The checkpoint is signed by the authority", async (state) => {
      const { receipt } = state;
      const checkpoint = readCheckpoint(receipt.checkpoint);
      state.checkpoint = checkpoint;
      if (checkpoint.origin !== receipt.authority) throw new Refusal("The checkpoint is of another log.");
      const raw = readKey(receipt.public_key);
      const keyId = (await sha256(utf8(`${receipt.authority}\n`), Uint8Array.of(1), raw)).subarray(0, 4);
      const own = checkpoint.signatures.filter(
        (each) => each.name === receipt.authority && same(each.keyId, keyId));
      if (own.length === 0) throw new Refusal("The checkpoint has no signature of this authority.");
      for (const each of own) {
        if (!(await verifies(raw, each.signature, checkpoint.message))) {
          throw new Refusal("The authority’s signature does not fit the checkpoint.");
        }
      }
      return `Over ${checkpoint.size} ${checkpoint.size === 1n ? "entry" : "entries"}.`;
    }],
    ["The entry is in the log that was signed", async (state) => {
      const { receipt } = state;
      const checkpoint = state.checkpoint ?? readCheckpoint(receipt.checkpoint);
      const proof = receipt.proof.map((text) => decodeBase64(text, "proof"));
      if ([...proof, checkpoint.root].some((each) => each.length !== 32)) {
        throw new Refusal("A hash of the proof is of the wrong length.");
      }
      const leaf = await sha256(Uint8Array.of(0), state.entry ?? utf8(receipt.entry));
      const root = await climb(leaf, BigInt(receipt.index), checkpoint.size, proof);
      if (!same(root, checkpoint.root)) throw new Refusal("The proof leads to another root: the entry or the proof was altered.");
      return `Entry ${receipt.index} of ${checkpoint.size}.`;
    }],
    ["The time stamp", async () => {
      throw new Unable("Your browser does not check it: the server does, or nsmark client check-receipt.");
    }],
  ];

  // --- What is shown. Texts of owners only ever become text. ---

  const visible = (text) =>
    text.replace(/[\p{C}\u2028\u2029]/gu, (odd) =>
      `[U+${odd.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}]`);
  const element = (tag, className, ...children) => {
    const made = document.createElement(tag);
    if (className) made.className = className;
    made.append(...children);
    return made;
  };
  const said = (text) => element("bdi", "said", visible(String(text).slice(0, 300).replaceAll("\n", " ")));

  const showStep = (result, name, words) => {
    steps.append(element("li", result,
      element("span", "mark", MARKS[result]),
      element("span", "", `${name}. `, element("span", "hint", words))));
  };
  const showFact = (name, value) => {
    found.append(element("div", "", element("dt", "", name), element("dd", "", value)));
  };
  const showFacts = ({ receipt, kind, statement, entryId, fingerprint }) => {
    const owner = statement?.claim?.owner ?? statement?.owner;
    showFact("Kind of entry", kind);
    if (owner !== undefined) showFact("Owner", said(owner));
    if (statement?.claim?.message !== undefined) showFact("Claim", said(statement.claim.message));
    showFact("Signed by the key", element("code", "", fingerprint));
    showFact("Entry", element("code", "", entryId));
    if (typeof statement?.content_sha256 === "string") {
      showFact("SHA-256 of its file", element("code", "", visible(statement.content_sha256)));
    }
    showFact("Time", receipt.local_time
      ? "in the time stamp, not checked here; by its own word a local one of this authority"
      : "in the time stamp, not checked here");
  };
  const conclude = (results) => {
    const failed = results.find(({ result }) => result === "failed");
    const signatures = results.slice(2, 4).some(({ result }) => result === "unchecked");
    let kind = "owned";
    let word = "Holds, but for the time";
    let sentence = "The statement is signed and in the log. The time stamp was not checked here.";
    if (failed !== undefined) {
      [kind, word] = ["refused", "Not valid"];
      sentence = `This receipt proves nothing. ${failed.words}`;
    } else if (signatures) {
      [kind, word] = ["could-not-measure", "Not decided"];
      sentence = "This browser cannot check the signatures. Check on the server, or with nsmark client check-receipt.";
    }
    summary.replaceChildren(element("div", `band ${kind} plain`, element("div", "",
      element("p", "word", word), element("p", "sentence", sentence))));
  };

  let latest = 0;
  const check = async (file) => {
    const turn = ++latest;
    section.hidden = false;
    steps.replaceChildren();
    found.replaceChildren();
    summary.replaceChildren(element("p", "", "Checking…"));
    if (globalThis.crypto?.subtle === undefined) {
      summary.replaceChildren(element("p", "", "Browsers offer their cryptography only to pages over https. Check on the server instead."));
      return;
    }
    const state = { file };
    const results = [];
    for (const [name, act] of CHECKS) {
      let result = "passed";
      let words;
      try {
        words = await act(state);
      } catch (error) {
        result = error instanceof Unable ? "unchecked" : "failed";
        const isOurs = error instanceof Unable || error instanceof Refusal;
        words = isOurs ? error.message : "It is malformed.";
      }
      if (turn !== latest) return; // another file was chosen meanwhile
      results.push({ name, result, words });
      if (result === "failed") break;
    }
    for (const { name, result, words } of results) showStep(result, name, words);
    const isSound = results.every(({ result }) => result !== "failed");
    if (isSound) showFacts(state);
    conclude(results);
  };

  const choose = () => {
    if (input.files.length === 1) check(input.files[0]);
  };
  input.addEventListener("change", choose);
  document.getElementById("drop-hint").hidden = false;

  // A file that misses the box must not replace the page.
  for (const kind of ["dragover", "drop"]) {
    window.addEventListener(kind, (event) => event.preventDefault());
  }
  drop.addEventListener("dragover", () => drop.classList.add("over"));
  drop.addEventListener("dragleave", () => drop.classList.remove("over"));
  drop.addEventListener("drop", (event) => {
    drop.classList.remove("over");
    const { files } = event.dataTransfer;
    if (files.length !== 1) return;
    input.files = files; // so that the button sends the same file
    choose();
  });
  choose();
})();
