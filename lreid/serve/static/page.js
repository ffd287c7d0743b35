"use strict";
const at = (id) => document.getElementById(id);
const copyOf = (template) => at(template).content.firstElementChild.cloneNode(true);
let rows = []; // the searched images: {file, element, answer}
let change = null; // name of the change that Undo reverts
let place = ""; // where the browser stores the threshold of this gallery
let running = 0; // number of actions

async function call(method, address, body) {
  const token = sessionStorage.getItem("token");
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const answer = await fetch(address, { method, body, headers }).catch(() => {
    throw new Error("The server does not answer. Check that it runs, then try again.");
  });
  if (answer.ok) return answer;
  at("access").hidden &&= answer.status !== 401;
  const { detail } = await answer.json().catch(() => ({ detail: answer.statusText }));
  const words = typeof detail === "string" ? detail : detail.map((each) => each.msg).join("; ");
  throw Object.assign(new Error(answer.status === 401 ? "Enter the token of this server." : words), { status: answer.status });
}

// Runs an action, and shows its error or the message that it returns.
async function attempt(action) {
  running += 1;
  at("busy").hidden = false;
  at("message").textContent = "";
  at("message").textContent = (await action().catch((error) => error.message)) ?? "";
  running -= 1;
  at("busy").hidden = running === 0;
}

const roundedUp = (threshold) => Math.ceil(threshold * 1e6) / 1e6; // as in lreid search
const images = (count) => `${count} ${count === 1 ? "image" : "images"}`;

async function describe() {
  const info = await (await call("GET", "info")).json();
  const people = Object.entries(await (await call("GET", "identities")).json());
  at("access").hidden = true;
  const rate = info.threshold === null ? "not calibrated" : `threshold ${roundedUp(info.threshold)}`;
  at("about").textContent = `${info.gallery}: ${images(info.images)}, ${info.identities} identities, ${info.cameras} cameras; ${rate}`;
  place = `threshold of ${info.gallery}, calibrated to ${info.threshold}`;
  at("threshold").value = localStorage.getItem(place) ?? info.threshold ?? 0;
  at("value").dataset.note = info.threshold === null ? " (not calibrated)" : "";
  at("list").replaceChildren(...people.map(([name, count]) => person(name, count)));
  at("names").replaceChildren(...people.map(([name]) => new Option(name, name)));
  filter();
}

function filter() {
  const part = at("filter").value.toLowerCase();
  for (const each of at("list").children) each.className = each.firstElementChild.textContent.toLowerCase().includes(part) ? "" : "off";
}

function person(name, count) {
  const item = copyOf("person"), [rename, remove] = item.querySelectorAll("button");
  item.querySelector("span").textContent = `${name}: ${images(count)}`;
  rename.onclick = () => attempt(() => renamed(name));
  remove.onclick = () => removed(`${name} (${images(count)})`, new URLSearchParams({ identity: name }));
  return item;
}

async function renamed(old) {
  const name = prompt(`New name of ${old}`, old)?.trim();
  if (!name || name === old) return "";
  const address = `rename?${new URLSearchParams({ old, new: name })}`;
  return changed("POST", address, "Renamed.").catch((error) => {
    if (error.status !== 409) throw error;
    if (confirm(`${name} already has images. Are both one person?`)) return changed("POST", `${address}&merge=true`, "Merged.");
  });
}

function removed(what, which) {
  if (confirm(`Remove ${what} from the gallery?`)) attempt(() => changed("DELETE", `images?${which}`, "Removed."));
}

async function changed(method, address, words, body) {
  change = (await (await call(method, address, body)).json()).undo ?? null;
  at("undo").hidden = change === null;
  await describe();
  await search();
  return words;
}

function show(files) {
  if (files.length === 0) return; // text was dropped
  rows = [...files].map((file) => ({ file, element: copyOf("ranking") }));
  for (const { file, element } of rows) {
    const photograph = element.querySelector("img");
    photograph.onload = () => at("found").classList.toggle("wide", photograph.naturalWidth > photograph.naturalHeight);
    photograph.src = URL.createObjectURL(file);
    element.querySelector("p .soft").textContent = file.name;
    element.querySelector("form").onsubmit = (event) => {
      event.preventDefault();
      const options = new URLSearchParams(new FormData(event.target));
      attempt(() => changed("POST", `images?${options}`, "Added.", file));
    };
  }
  at("rankings").replaceChildren(...rows.map((row) => row.element));
  at("found").hidden = false;
  attempt(search);
}

async function search() {
  for (const row of rows) {
    try {
      row.answer = await (await call("POST", "search?top=12", row.file)).json();
    } catch (error) {
      row.answer = { matches: [], error: error.message };
    }
    for (const part of row.element.querySelectorAll("figure, form")) part.hidden = "error" in row.answer;
    row.element.querySelector(".matches").replaceChildren(...row.answer.matches.map(card));
    judge(row);
  }
}

function card(match) {
  const item = copyOf("match"), image = item.querySelector("img"), which = new URLSearchParams({ path: match.path });
  image.title = match.path;
  call("GET", `images?${which}`).then((answer) => answer.blob()).then(
    (blob) => { image.src = URL.createObjectURL(blob); }, () => { image.alt = "image not found"; });
  const [who, score, camera] = item.querySelectorAll("span");
  who.textContent = `${match.rank}. ${match.identity ?? "no name"}`;
  score.textContent = match.score.toFixed(3);
  camera.textContent = match.camera === null ? "" : `camera ${match.camera}`;
  item.querySelector("button").onclick = () => removed(`this image of ${match.identity ?? "nobody"}`, which);
  return item;
}

// As in lreid search, the best match that has a name and reaches the threshold decides; only its person is green.
function judge({ answer, element }) {
  const threshold = Number(at("threshold").value);
  const named = answer.matches.filter((match) => match.identity !== null);
  const best = named.find((match) => match.score >= threshold);
  answer.matches.forEach((match, row) => {
    const known = best && match.identity === best.identity && match.score >= threshold;
    element.querySelector(".matches").children[row].className = known ? "known" : match.score < threshold ? "below" : "";
  });
  at("value").textContent = roundedUp(threshold) + at("value").dataset.note;
  const words = (match) => `${match.identity} (${match.score.toFixed(3)})`;
  const nearest = named.length ? `; the nearest is ${words(named[0])}` : "";
  element.querySelector(".verdict").textContent = answer.error ?? (best ? words(best) : `unknown${nearest}`);
}

at("files").onchange = () => {
  show(at("files").files);
  at("files").value = ""; // so that the same files can be chosen again
};
at("drop").ondragover = (event) => { event.preventDefault(); at("drop").className = "over"; };
at("drop").ondragleave = () => { at("drop").className = ""; };
at("drop").ondrop = (event) => {
  event.preventDefault();
  at("drop").className = "";
  show(event.dataTransfer.files);
};
at("threshold").oninput = () => {
  localStorage.setItem(place, at("threshold").value);
  rows.filter((row) => row.answer).forEach(judge);
};
at("rankings").onclick = (event) => { if (event.target.matches(".frame img")) event.target.classList.toggle("large"); };
at("filter").oninput = filter;
at("undo").onclick = () => attempt(() => changed("POST", `undo/${change}`, "Undone."));
at("access").onsubmit = (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", at("token").value);
  attempt(describe);
};
attempt(describe);
