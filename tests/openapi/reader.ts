// A program over the types that openapi-typescript makes of the document. It only has to compile:
// a line after "@ts-expect-error" must not.
import type { components, operations, paths } from "./countersign";

type Schemas = components["schemas"];
type Json<Answer> = Answer extends { content: { "application/json": infer Body } } ? Body : never;
type Answers<Name extends keyof operations> = operations[Name]["responses"];
type Ok<Name extends keyof operations> =
  | (Answers<Name> extends { 200: infer Answer } ? Json<Answer> : never)
  | (Answers<Name> extends { 201: infer Answer } ? Json<Answer> : never);
type Refused<Name extends keyof operations> = Answers<Name> extends { 400: infer Answer }
  ? Json<Answer>
  : never;
type QueryOf<Name extends keyof operations> = NonNullable<operations[Name]["parameters"]["query"]>;
type BodyOf<Name extends keyof operations> = operations[Name] extends {
  requestBody: { content: { "application/json": infer Body } };
}
  ? Body
  : never;

const headers = { "x-service-admin-token": "…" };
const root: keyof paths = "/api/v1/admin/orgs/{slug}/audit";

async function ask<Name extends keyof operations>(
  name: Name,
  path: string,
  query: QueryOf<Name>,
): Promise<Ok<Name>> {
  const asked = new URLSearchParams(Object.entries(query).map(([key, value]) => [key, `${value}`]));
  const answer = await fetch(`${path}?${asked}`, { headers });
  if (!answer.ok) {
    const refusal = (await answer.json()) as Refused<Name>;
    throw new Error(`${name}: ${(refusal as Schemas["Error"]).error}`);
  }
  return (await answer.json()) as Ok<Name>;
}

export async function blocked(slug: string): Promise<Array<[string, string | null]>> {
  const rows: Schemas["AuditEntry"][] = [];
  let cursor: string | null = null;
  do {
    const query: QueryOf<"query_audit_log"> = { decision: ["BLOCKED"], limit: 100, order: "asc" };
    const page: Schemas["AuditPage"] = await ask("query_audit_log", root.replace("{slug}", slug), {
      ...query,
      ...(cursor === null ? {} : { cursor }),
    });
    rows.push(...page.entries);
    cursor = page.next_cursor;
  } while (cursor !== null);
  return rows.map((row) => [row.created_at, row.packageName]);
}

export async function total(slug: string): Promise<number> {
  const summary = await ask("summarise_audit_log", `${slug}/summary`, { q: "left-pad" });
  return summary.buckets.reduce((sum, bucket) => sum + bucket.ALLOWED + bucket.BLOCKED, 0);
}

export const events: BodyOf<"ingest_events"> = [
  { event: "install_allowed", packageName: "left-pad", version: "1.3.0", ecosystem: "npm" },
];
export const binding: BodyOf<"create_binding"> = {
  issuer: "https://token.actions.githubusercontent.com",
  sub_pattern: "repo:acme/payments:ref:refs/heads/main",
  repository_id: 42,
  origin: "org_admin",
};
export const policy: BodyOf<"set_policy"> = {
  mode: "enforce",
  deny: [{ ecosystem: "npm", package: "left-pad", versions: "<1.3.0" }],
  cooldown: { min_age_days: 7 },
};
export const list: QueryOf<"list_bindings"> = { active: true };
export const file: QueryOf<"export_audit_log"> = { format: "parquet", raw: false };

// @ts-expect-error: flags are no text
export const text: QueryOf<"list_bindings"> = { active: "true" };
// @ts-expect-error: an export has a format
export const none: QueryOf<"export_audit_log"> = {};
// @ts-expect-error: there is no such event
export const wrong: BodyOf<"ingest_events"> = [{ event: "installed", packageName: "left-pad" }];
// @ts-expect-error: the query knows no such parameter
export const other: QueryOf<"query_audit_log"> = { packages: ["left-pad"] };
