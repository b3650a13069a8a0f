// Has swagger-parser read the document that is named: `node validate.mjs PARSER DOCUMENT`.
import { pathToFileURL } from "node:url";

const [parser, document] = process.argv.slice(2);
const { default: SwaggerParser } = await import(pathToFileURL(parser).href);
await SwaggerParser.validate(document);
