// What llama.cpp makes of a GGUF: llama_tokens.mjs NODE_MODULES < request > answer
//
// request {"model": PATH, "texts": [TEXT...], "prompts": [[ID...]...], "count": N}
// answer  {"bos", "eos", "tokens": [[ID...]...] of the texts,
//          "continuations": [[ID...]...] the N likeliest tokens after each prompt,
//          "decoded": [TEXT...] of the texts' tokens}
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import path from "node:path";
import fs from "node:fs";

const modules = path.resolve(process.argv[2]);
const require = createRequire(path.join(modules, "node-llama-cpp", "package.json"));
const entry = path.join(modules, "node-llama-cpp", require("./package.json").main);
const { getLlama, LlamaLogLevel } = await import(pathToFileURL(entry));

const request = JSON.parse(fs.readFileSync(0, "utf8"));
const llama = await getLlama({
    gpu: false,
    build: "never",
    logLevel: LlamaLogLevel.error,
    maxThreads: 1, // its threads wait for each other without sleeping
});
const model = await llama.loadModel({ modelPath: request.model });
const context = await model.createContext({
    contextSize: model.trainContextSize,
    // the cache in float32 and plain attention: the least rounding that it can do
    experimentalKvCacheKeyType: "F32",
    experimentalKvCacheValueType: "F32",
    flashAttention: false,
    threads: 1,
});

async function continuation(prompt) {
    const sequence = context.getSequence();
    const ids = [];
    for await (const id of sequence.evaluate(prompt, { temperature: 0 })) {
        ids.push(id);
        if (ids.length === request.count) break;
    }
    sequence.dispose();
    return ids;
}

const tokens = request.texts.map((text) => model.tokenize(text));
const answer = {
    bos: model.tokens.bos,
    eos: model.tokens.eos,
    tokens,
    decoded: tokens.map((ids) => model.detokenize(ids)),
    continuations: [],
};
for (const prompt of request.prompts) answer.continuations.push(await continuation(prompt));
fs.writeSync(1, JSON.stringify(answer));
process.exit(0);
