"use strict";
const at = (id) => document.getElementById(id);
let photograph = null; // the image file that is shown
let result = null; // the result of its search
let change = null; // name of the change that Undo reverts

async function call(method, address, body) {
  const token = sessionStorage.getItem("token");
  const answer = await fetch(address, { method, body, headers: token ? { Authorization: `Bearer ${token}` } : {} });
  if (answer.ok) return answer;
  if (answer.status === 401) at("access").hidden = false;
  const { detail } = await answer.json().catch(() => ({ detail: answer.statusText }));
  throw new Error(typeof detail === "string" ? detail : detail.map((each) => each.msg).join("; "));
}

// Runs an action and shows its error, or the message that it returns.
const attempt = (action) => action().catch((error) => error.message).then((words) => { at("message").textContent = words ?? ""; });

const roundedUp = (threshold) => Math.ceil(threshold * 1e6) / 1e6; // as in lreid search

async function describe() {
  const info = await (await call("GET", "info")).json();
  at("access").hidden = true;
  const rate = info.threshold === null ? "not calibrated" : `threshold ${roundedUp(info.threshold)}`;
  at("about").textContent = `${info.gallery}: ${info.images} images, ${info.identities} identities, ${info.cameras} cameras; ${rate}`;
}

async function search(file) {
  photograph = file;
  at("result").hidden = true;
  at("photograph").src = URL.createObjectURL(file);
  at("photograph").hidden = false;
  const answer = await (await call("POST", "search?top=12", file)).json();
  if (file !== photograph) return; // the user has chosen another file meanwhile
  if (result === null) at("threshold").value = answer.threshold ?? 0; // later the slider stays where the user moved it
  result = answer;
  at("matches").replaceChildren(...result.matches.map(card));
  at("result").hidden = false;
  judge();
}

function card(match) {
  const [item, image, words, remove] = ["li", "img", "span", "button"].map((tag) => document.createElement(tag));
  const address = `images?path=${encodeURIComponent(match.path)}`;
  [image.alt, image.title, remove.textContent] = ["", match.path, "Remove"];
  call("GET", address).then((answer) => answer.blob()).then(
    (blob) => { image.src = URL.createObjectURL(blob); }, () => { image.alt = "image not found"; });
  const camera = match.camera === null ? "" : `, camera ${match.camera}`;
  words.textContent = `${match.rank}. ${match.identity ?? "no name"}, ${match.score.toFixed(3)}${camera}`;
  remove.onclick = () => attempt(() => changed("DELETE", address, "Removed."));
  item.append(image, words, remove);
  return item;
}

// As in lreid search, the best match that has a name and reaches the threshold decides.
function judge() {
  const threshold = Number(at("threshold").value);
  const known = result.matches.map((match) => match.identity !== null && match.score >= threshold);
  known.forEach((each, row) => { at("matches").children[row].className = each ? "known" : "below"; });
  const best = result.matches[known.indexOf(true)];
  at("value").textContent = roundedUp(threshold) + (result.threshold === null ? " (not calibrated)" : "");
  at("verdict").textContent = best ? `${best.identity} (${best.score.toFixed(3)})` : "unknown";
}

async function changed(method, address, words, body) {
  change = (await (await call(method, address, body)).json()).undo ?? null;
  at("undo").hidden = change === null;
  await describe();
  await search(photograph);
  return words;
}

at("file").onchange = () => at("file").files.length && attempt(() => search(at("file").files[0]));
at("drop").ondragover = (event) => event.preventDefault();
at("drop").ondrop = (event) => {
  event.preventDefault();
  if (event.dataTransfer.files.length) attempt(() => search(event.dataTransfer.files[0]));
};
at("threshold").oninput = judge;
at("add").onsubmit = (event) => {
  event.preventDefault();
  attempt(() => changed("POST", `images?${new URLSearchParams(new FormData(at("add")))}`, "Added.", photograph));
};
at("undo").onclick = () => attempt(() => changed("POST", `undo/${change}`, "Undone."));
at("access").onsubmit = (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", at("token").value);
  attempt(describe);
};
attempt(describe);
