/*
 * axis - from values to pixels and back, linear or logarithmic, and where the ticks stand.
 */

class Axis {
    /* Values low..high lie on pixels from..to. A logarithmic axis needs low > 0. */
    constructor(low, high, from, to, isLog) {
        this.isLog = isLog;
        this.low = low;
        this.high = high;
        this.from = from;
        this.to = to;
        this.a = isLog ? Math.log10(low) : low;
        this.b = isLog ? Math.log10(high) : high;
        if (!(this.b > this.a)) this.b = this.a + 1;
    }

    place(value) {
        const v = this.isLog ? Math.log10(value) : value;
        return this.from + ((v - this.a) / (this.b - this.a)) * (this.to - this.from);
    }

    value(pixel) {
        const v = this.a + ((pixel - this.from) / (this.to - this.from)) * (this.b - this.a);
        return this.isLog ? Math.pow(10, v) : v;
    }

    /* About n round values within the axis. */
    ticks(n) {
        return this.isLog ? this.logTicks(n) : linearTicks(this.low, this.high, n);
    }

    logTicks(n) {
        const decades = this.b - this.a;
        if (decades < 0.7) return linearTicks(this.low, this.high, n);
        const steps = decades <= n / 3 ? [1, 2, 5] : [1];
        const every = Math.max(1, Math.ceil(decades / n));
        const found = [];
        for (let d = Math.floor(this.a); d <= Math.ceil(this.b); d++) {
            if (((d % every) + every) % every !== 0) continue;
            for (const s of steps) {
                const value = s * Math.pow(10, d);
                if (value >= this.low * 0.9999 && value <= this.high * 1.0001) found.push(value);
            }
        }
        return found;
    }
}

function linearTicks(low, high, n) {
    const span = high - low;
    if (!(span > 0)) return [low];
    const rough = span / Math.max(1, n);
    const power = Math.pow(10, Math.floor(Math.log10(rough)));
    const step = [1, 2, 2.5, 5, 10].find((s) => s * power >= rough * 0.999) * power;
    const found = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) found.push(i * step);
    return found;
}

/* Ticks of seconds: whole minutes, hours and days. */
function timeTicks(low, high, n) {
    const rough = (high - low) / Math.max(1, n);
    const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400];
    let step = steps.find((s) => s >= rough);
    if (rough < 0.5) return linearTicks(low, high, n);
    if (step === undefined) step = 86400 * Math.ceil(rough / 86400);
    const found = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9; i++) found.push(i * step);
    return found;
}

/* The four things a curve can be drawn over. */
const X_AXES = {
    step: {text: "Step", long: "step", format: formatCount, short: (x) => formatLarge(x)},
    tokens: {text: "Tokens", long: "tokens", format: formatTokens, short: formatTokens},
    time: {text: "Time", long: "time since the first logged step", format: formatSeconds, short: formatSeconds},
    flops: {text: "FLOPs", long: "floating-point operations of the model", format: (x) => formatLarge(x, "FLOP"), short: (x) => formatLarge(x)},
};
