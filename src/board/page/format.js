"use strict";
/*
 * format - elements, numbers, times and colours, the words the rest is written in.
 *
 * Text from a run (names, errors, samples, configuration) reaches the page through
 * textContent only, never as markup: el() has no other way to set it.
 */

const byId = (id) => document.getElementById(id);

/* An element: el("p", {class: "note", onclick: f, hidden: true}, "text", child, ...). */
function el(tag, facts, ...children) {
    const node = document.createElement(tag);
    for (const [key, value] of Object.entries(facts || {})) {
        if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
        else if (key === "class") node.className = value;
        else if (key in node && typeof value !== "string") node[key] = value;
        else node.setAttribute(key, String(value));
    }
    for (const child of children)
        if (child !== null && child !== undefined)
            node.append(child instanceof Node ? child : document.createTextNode(String(child)));
    return node;
}

const isNumber = (x) => typeof x === "number" && Number.isFinite(x);

const THIN = "\u202f"; // a thin space that does not break: 1 234 567

/* A whole number with its thousands apart. */
function formatCount(x) {
    if (!isNumber(x)) return "–";
    return Math.round(x).toString().replace(/\B(?=(\d{3})+(?!\d))/g, THIN);
}

const LARGE = [[1e21, "Z"], [1e18, "E"], [1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];

/* Three digits and a letter: 12.3 M. */
function formatLarge(x, unit = "") {
    if (!isNumber(x)) return "–";
    for (const [size, letter] of LARGE)
        if (Math.abs(x) >= size * 0.9995)
            return trimNumber(x / size, 3) + "\u00a0" + letter + unit;
    return trimNumber(x, 3) + (unit ? "\u00a0" + unit : "");
}

/* As tokens are counted: billions are B, not G. */
const formatTokens = (x) => formatLarge(x).replace(/G$/, "B");

function formatBytes(x) {
    if (!isNumber(x)) return "–";
    const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let u = 0;
    while (x >= 1023.5 && u < units.length - 1) {
        x /= 1024;
        u++;
    }
    return trimNumber(x, 3) + "\u00a0" + units[u];
}

/* At most `digits` figures, without zeros that say nothing at the end. */
function trimNumber(x, digits) {
    if (x === 0) return "0";
    const size = Math.floor(Math.log10(Math.abs(x)));
    const decimals = Math.min(12, Math.max(0, digits - 1 - size));
    const text = x.toFixed(decimals);
    return decimals > 0 ? text.replace(/\.?0+$/, "") : text;
}

/* A value of a curve: plain from 0.001 to a million, by powers of ten beyond. */
function formatValue(x, digits = 4) {
    if (!isNumber(x)) return "–";
    const size = Math.abs(x);
    if (size !== 0 && (size < 1e-3 || size >= 1e6)) {
        const [head, power] = x.toExponential(Math.max(0, digits - 2)).split("e");
        const short = head.includes(".") ? head.replace(/\.?0+$/, "") : head;
        return short + "e" + power.replace("+", "");
    }
    return trimNumber(x, digits);
}

/* Numbers from 0 to 1 as per cent. */
function formatShare(x) {
    if (!isNumber(x)) return "–";
    const percent = 100 * x;
    return (percent !== 0 && Math.abs(percent) < 9.95 ? percent.toFixed(1) : percent.toFixed(0)) + "\u00a0%";
}

const SPANS = [[86400, "d", 3600, "h"], [3600, "h", 60, "min"], [60, "min", 1, "s"]];

/* A length of time in its two largest units: 3 h 12 min. */
function formatSeconds(seconds) {
    if (!isNumber(seconds)) return "–";
    const sign = seconds < 0 ? "−" : "";
    const s = Math.abs(seconds);
    if (s < 0.9995) return sign + trimNumber(s * 1000, 3) + "\u00a0ms";
    if (s < 59.95) return sign + trimNumber(s, 3) + "\u00a0s";
    for (const [large, largeName, small, smallName] of SPANS) {
        if (s < large - small / 2) continue;
        const whole = Math.round(s / small) * small;
        const n = Math.floor(whole / large);
        const rest = Math.round((whole - n * large) / small);
        return sign + n + "\u00a0" + largeName + (rest > 0 && n < 100 ? " " + rest + "\u00a0" + smallName : "");
    }
    return sign + trimNumber(s, 3) + "\u00a0s";
}

const two = (n) => String(n).padStart(2, "0");

/* Unix seconds as the reader's clock: 14:05:09 today, with the date on other days. */
function formatTime(unix) {
    if (!isNumber(unix)) return "–";
    const at = new Date(unix * 1000);
    if (Number.isNaN(at.getTime())) return "–";
    const clock = two(at.getHours()) + ":" + two(at.getMinutes()) + ":" + two(at.getSeconds());
    if (at.toDateString() === new Date().toDateString()) return clock;
    return at.getFullYear() + "-" + two(at.getMonth() + 1) + "-" + two(at.getDate()) + " " + clock;
}

/* A moment `ahead` seconds from now: the clock within the next hours, else the day too. */
function formatMoment(unix, ahead) {
    const at = new Date(unix * 1000);
    if (Number.isNaN(at.getTime())) return "–";
    const clock = two(at.getHours()) + ":" + two(at.getMinutes());
    if (ahead < 20 * 3600) return clock;
    return at.toLocaleDateString("en-GB", {weekday: "short", day: "numeric", month: "short", year: ahead > 200 * 86400 ? "numeric" : undefined}) + " " + clock;
}

/* -- colours ------------------------------------------------------------------------------ */

/* Curves: eight colours that people with any colour vision tell apart, by theme. From the
 * ninth run on the same colours return with a dashed line. */
const CURVE_COLOURS = {
    light: ["#0068b0", "#d1560a", "#0a8f6a", "#b0458a", "#8a6d00", "#5a48c8", "#2f9fd0", "#5c6570"],
    dark: ["#5cb3f5", "#f59352", "#3ccb9d", "#ee92cb", "#e3c341", "#a99cff", "#8adcff", "#b8c0ca"],
};

const themeNow = () => document.documentElement.dataset.shade || "light";

function curveStyle(slot) {
    const colours = CURVE_COLOURS[themeNow()];
    return {colour: colours[slot % colours.length], dash: slot < colours.length ? [] : [6, 3]};
}

/* The value of a custom property of the style sheet, so that canvas and page agree. */
function themeColour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
}

/* Anchors of a scale from dark blue to yellow whose lightness rises evenly, so that it
 * reads the same without colour. */
const HEAT = [[22, 37, 92], [43, 79, 134], [83, 112, 140], [128, 141, 138], [178, 170, 116], [230, 201, 80], [255, 233, 92]];

function heatColour(share) {
    const t = Math.min(1, Math.max(0, share)) * (HEAT.length - 1);
    const i = Math.min(HEAT.length - 2, Math.floor(t));
    const mix = HEAT[i].map((a, c) => Math.round(a + (HEAT[i + 1][c] - a) * (t - i)));
    return "rgb(" + mix.join(",") + ")";
}

/* -- canvas ------------------------------------------------------------------------------- */

/* Fit a canvas to its box in the screen's pixels; gives its context, in CSS pixels. */
function fitCanvas(canvas, width, height) {
    const scale = window.devicePixelRatio || 1;
    const w = Math.max(1, Math.round(width * scale));
    const h = Math.max(1, Math.round(height * scale));
    if (canvas.width !== w || canvas.height !== h) {
        canvas.width = w;
        canvas.height = h;
    }
    const pen = canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, width, height);
    return pen;
}

/* A group of buttons of which one is pressed; choose(value) is called when another is. */
function segmented(label, choices, chosen, choose) {
    const box = el("div", {class: "segmented", role: "group", "aria-label": label});
    const press = (value) => {
        for (const button of box.children)
            button.setAttribute("aria-pressed", String(button.dataset.value === value));
    };
    for (const [value, text] of choices)
        box.append(el("button", {type: "button", "data-value": value, onclick: () => {
            press(value);
            choose(value);
        }}, text));
    press(chosen);
    return box;
}

/* A box to tick, with its text beside it. */
function tick(text, checked, change) {
    const box = el("input", {type: "checkbox", checked});
    box.addEventListener("change", () => change(box.checked));
    return el("label", {class: "tick"}, box, text);
}
