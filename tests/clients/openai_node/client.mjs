// The openai package for Node: chats, streams, errors, structured output, tools and responses.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";

const [smollm2Url, toolsUrl] = process.argv.slice(2);
const smollm2 = new OpenAI({ baseURL: `${smollm2Url}/v1`, apiKey: "none", maxRetries: 0 });
const scripted = new OpenAI({ baseURL: `${toolsUrl}/v1`, apiKey: "none", maxRetries: 0 });

const question = [{ role: "user", content: "What is the capital of France?" }];
const greedy = { model: "smollm2", temperature: 0, max_tokens: 24 };
const parameters = { type: "object", properties: { city: { type: "string" }, days: { type: "integer" } }, required: ["city", "days"] };
const tools = [{ type: "function", function: { name: "get_weather", description: "The weather", parameters } }];
const paris = { city: "Paris", days: 2 };

async function aStreamSaysWhatTheWholeAnswerSays() {
  const answer = await smollm2.chat.completions.create({ ...greedy, messages: question });
  assert.match(answer.choices[0].message.content, /Paris/);
  let text = "";
  let usage = null;
  for await (const chunk of await smollm2.chat.completions.create({ ...greedy, messages: question, stream: true, stream_options: { include_usage: true } })) {
    text += chunk.choices[0]?.delta?.content ?? "";
    usage = chunk.usage ?? usage;
  }
  assert.equal(text, answer.choices[0].message.content);
  assert.deepEqual([usage.prompt_tokens, usage.completion_tokens], [answer.usage.prompt_tokens, answer.usage.completion_tokens]);
  const accumulated = await smollm2.chat.completions.stream({ ...greedy, messages: question }).finalChatCompletion();
  assert.equal(accumulated.choices[0].message.content, text);
}

async function anAbortEndsAStream() {
  const stream = await smollm2.chat.completions.create({ ...greedy, max_tokens: 500, messages: question, stream: true });
  for await (const _chunk of stream) {
    stream.controller.abort();
    break;
  }
}

async function completionsHaveLogprobs() {
  const answer = await smollm2.completions.create({ ...greedy, prompt: "One, two,", logprobs: 1, echo: true, max_tokens: 4 });
  const { tokens, token_logprobs } = answer.choices[0].logprobs;
  assert.equal(tokens.join(""), answer.choices[0].text);
  assert.equal(token_logprobs[0], null);
}

async function parsedOutputFollowsTheSchema() {
  const Animal = z.object({ name: z.string().max(20), legs: z.number().int(), kind: z.enum(["bird", "mammal", "fish"]) });
  const completion = await smollm2.chat.completions.parse({
    ...greedy,
    max_tokens: 200,
    messages: [{ role: "user", content: "Describe a cat as JSON." }],
    response_format: zodResponseFormat(Animal, "animal"),
  });
  assert.ok(["bird", "mammal", "fish"].includes(completion.choices[0].message.parsed.kind));
}

async function toolsAreCalledAndAnswered() {
  const request = { model: "scripted", messages: [{ role: "user", content: "Weather in Paris?" }], tools };
  const whole = (await scripted.chat.completions.create(request)).choices[0];
  const streamed = (await scripted.chat.completions.stream(request).finalChatCompletion()).choices[0];
  for (const choice of [whole, streamed]) {
    assert.equal(choice.finish_reason, "tool_calls");
    assert.deepEqual(JSON.parse(choice.message.tool_calls[0].function.arguments), paris);
  }
  const asked = [];
  const tool = { name: "get_weather", description: "The weather", parameters, parse: JSON.parse };
  const getWeather = { type: "function", function: { ...tool, function: (city) => (asked.push(city), "sunny, 21 degrees") } };
  const runner = scripted.chat.completions.runTools({ ...request, tools: [getWeather] });
  assert.equal(await runner.finalContent(), "It is sunny in Paris, at 21 degrees.");
  assert.deepEqual(asked, [paris]);
}

async function responsesStream() {
  const response = await smollm2.responses.create({ model: "smollm2", input: question[0].content, temperature: 0, max_output_tokens: 24 });
  assert.match(response.output_text, /Paris/);
  const stream = smollm2.responses.stream({ model: "smollm2", input: question[0].content, temperature: 0, max_output_tokens: 24 });
  assert.equal((await stream.finalResponse()).output_text, response.output_text);
}

async function errorsHaveTheirClass() {
  await assert.rejects(smollm2.chat.completions.create({ ...greedy, model: "other", messages: question }), OpenAI.NotFoundError);
  await assert.rejects(smollm2.chat.completions.create({ ...greedy, temperature: 3, messages: question }), (error) => {
    return error instanceof OpenAI.BadRequestError && error.param === "temperature";
  });
  assert.deepEqual((await smollm2.models.list()).data.map((model) => model.id), ["smollm2"]);
}

await aStreamSaysWhatTheWholeAnswerSays();
await anAbortEndsAStream();
await completionsHaveLogprobs();
await parsedOutputFollowsTheSchema();
await toolsAreCalledAndAnswered();
await responsesStream();
await errorsHaveTheirClass();
