// Has swagger-parser read the document that is named, and JavaScript each pattern of it: JSON Schema's are those of
// ECMAScript. `node validate.mjs PARSER DOCUMENT`.
import { pathToFileURL } from "node:url";

const [parser, document] = process.argv.slice(2);
const { default: SwaggerParser } = await import(pathToFileURL(parser).href);
const read = await SwaggerParser.validate(document);
JSON.stringify(read.paths, (key, value) => {
  if (key === "pattern" && typeof value === "string") new RegExp(value, "u");
  return value;
});
