// The openai package of Node drives the server; run by test_openai_clients.py.
import assert from "node:assert/strict";
import OpenAI from "openai";

const [baseURL, model] = process.argv.slice(2);
const client = new OpenAI({ apiKey: "none", baseURL, maxRetries: 0 });
const messages = [{ role: "user", content: "Hello?" }];
const said = "Hello to you.";

for (const name of [model, "acme/guide"]) {
  const plain = await client.chat.completions.create({ model: name, messages });
  assert.equal(plain.choices[0].message.content, said);

  let told = "";
  const stream = await client.chat.completions.create({ model: name, messages, stream: true });
  for await (const chunk of stream) told += chunk.choices[0]?.delta?.content ?? "";
  assert.equal(told, said);

  const response = await client.responses.create({ model: name, input: "Hello?" });
  assert.equal(response.output_text, said);

  told = "";
  const events = await client.responses.create({ model: name, input: "Hello?", stream: true });
  for await (const event of events) {
    if (event.type === "response.output_text.delta") told += event.delta;
  }
  assert.equal(told, said);
}

const vectors = await client.embeddings.create({ model, input: ["one", "two"] });
assert.equal(vectors.data.length, 2);
assert.equal(vectors.data[0].embedding.length, 32);

const ids = [];
for await (const one of client.models.list()) ids.push(one.id);
assert.ok(ids.includes("acme/guide") && ids.includes(model));

await assert.rejects(
  client.chat.completions.create({ model: "acme/nobody", messages }),
  (error) => error instanceof OpenAI.NotFoundError && error.code === "model_not_found",
);

console.log("all is well");
