// Submits a question in each of the two forms and prints both outcomes: node node_client.mjs URL PREFIX
import { createClient } from "redis";

const [url, prefix] = process.argv.slice(2);
const client = await createClient({ url }).connect();

async function outcomeOf(jobId) {
  let last = "0-0";
  for (;;) {
    const reply = await client.xRead({ key: `${prefix}job:${jobId}:events`, id: last }, { BLOCK: 5000, COUNT: 100 });
    for (const { id, message } of reply?.[0]?.messages ?? []) {
      last = id;
      if (message.type === "terminal") return message.data;
    }
  }
}

const entryId = await client.xAdd(`${prefix}gateway`, "*", { question: "Combien ?", top_k: "3" });
console.log(await outcomeOf(entryId));

await client.xAdd(`${prefix}gateway`, "*", {
  data: JSON.stringify({ job_id: "from-node", question: "Почему?", deadline_s: 30 }),
});
console.log(await outcomeOf("from-node"));

client.destroy();
