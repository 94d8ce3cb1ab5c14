// The senders' own libraries, one JSON object a line in and out. `sign` makes a request as the sender would; `verify`
// lets the library judge one. Where a sender publishes only a verifier, what is signed here by its documentation must
// first please that verifier. Senders without a library (none published for Node.js) are signed by their documentation.
import crypto from 'node:crypto';
import { createRequire } from 'node:module';
import path from 'node:path';
import readline from 'node:readline';
import { pathToFileURL } from 'node:url';

// Libraries print what they think of a request; the answers stand on standard output alone.
console.debug = console.log = console.error = console.warn = () => {};

const modules = process.env.MIDWATCH_TEST_NODE_MODULES;
const require = createRequire(pathToFileURL(path.join(modules, 'here.js')));
// A process for one sender alone loads its library alone.
const once = (load) => {
  let loaded;
  return () => (loaded ??= load());
};

const stripe = once(() => new (require('stripe'))('sk_test_none'));
const octokit = once(() => import(pathToFileURL(path.join(modules, '@octokit/webhooks-methods/dist-node/index.js'))));
const Standard = once(() => require('standardwebhooks').Webhook);
const twilio = once(() => require('twilio/lib/webhooks/webhooks'));
const bolt = once(() => require(path.join(modules, '@slack/bolt/dist/receivers/verify-request.js')));
const Linear = once(() => require('@linear/sdk/webhooks').LinearWebhookClient);
const shopify = once(() => {
  require('@shopify/shopify-api/adapters/node');
  return require('@shopify/shopify-api');
});
const shopifyRuntime = once(() => require('@shopify/shopify-api/runtime'));
const zoom = once(() => require('@zoom/rivet/users').AwsLambdaReceiver);
const cloudevents = once(() => require('cloudevents'));
const discord = once(() => require('discord-interactions'));

const hmac = (secret, text, encoding = 'hex') => crypto.createHmac('sha256', secret).update(text).digest(encoding);
const fields = (body) => Object.fromEntries(new URLSearchParams(body));

/** A private key of Ed25519 from its 32 bytes. */
const ed25519 = (seed) =>
  crypto.createPrivateKey({
    key: Buffer.concat([Buffer.from('302e020100300506032b657004220420', 'hex'), Buffer.from(seed, 'hex')]),
    format: 'der',
    type: 'pkcs8',
  });

async function linear(secret, body, signature) {
  return new (Linear())(secret).verify(Buffer.from(body), signature, JSON.parse(body).webhookTimestamp);
}

const standard = {
  sign: ({ secret, body, id, at_s }) => ({
    'webhook-id': id,
    'webhook-timestamp': `${at_s}`,
    'webhook-signature': new (Standard())(secret).sign(id, new Date(at_s * 1000), body),
  }),
  verify: ({ secret, body, headers }) => Boolean(new (Standard())(secret).verify(body, headers)),
};

const github = {
  sign: async ({ secret, body, id }) => ({
    'x-hub-signature-256': await (await octokit()).sign(secret, body),
    'x-github-delivery': id,
    'x-github-event': 'push',
  }),
  verify: async ({ secret, body, headers }) =>
    (await octokit()).verify(secret, body, headers['x-hub-signature-256']),
};

const senders = {
  github,
  meta: github,
  'standard-webhooks': standard,
  gitlab: standard,
  stripe: {
    sign: ({ secret, body, at_s }) => ({
      'stripe-signature': stripe().webhooks.generateTestHeaderString({ payload: body, secret, timestamp: at_s }),
    }),
    verify: ({ secret, body, headers }) =>
      Boolean(stripe().webhooks.constructEvent(body, headers['stripe-signature'], secret)),
  },
  twilio: {
    sign: ({ secret, body, url }) => ({
      'x-twilio-signature': twilio().getExpectedTwilioSignature(secret, url, fields(body)),
    }),
    verify: ({ secret, body, url, headers }) =>
      twilio().validateRequest(secret, headers['x-twilio-signature'], url, fields(body)),
  },
  slack: {
    sign: ({ secret, body, at_s }) => ({
      'x-slack-request-timestamp': `${at_s}`,
      'x-slack-signature': `v0=${hmac(secret, `v0:${at_s}:${body}`)}`,
    }),
    verify: ({ secret, body, headers }) => bolt().isValidSlackRequest({ signingSecret: secret, body, headers }),
  },
  linear: {
    sign: ({ secret, body }) => ({ 'linear-signature': hmac(secret, body), 'linear-event': 'Issue' }),
    verify: ({ secret, body, headers }) => linear(secret, body, headers['linear-signature']),
  },
  shopify: {
    sign: async ({ secret, body, id }) => ({
      'x-shopify-hmac-sha256': await shopifyRuntime().createSHA256HMAC(secret, body),
      'x-shopify-webhook-id': id,
      'x-shopify-topic': 'orders/create',
    }),
    verify: async ({ secret, body, headers }) => {
      const { shopifyApi, LATEST_API_VERSION } = shopify();
      const isEmbeddedApp = true;
      const app = shopifyApi({
        apiKey: 'key', apiSecretKey: secret, scopes: [], hostName: 'watch.example', apiVersion: LATEST_API_VERSION,
        isEmbeddedApp,
      });
      // What any shop sends along beside it.
      const more = { 'x-shopify-api-version': LATEST_API_VERSION, 'x-shopify-shop-domain': 'a.example' };
      const rawRequest = { method: 'POST', url: '/', headers: { ...more, ...headers } };
      return (await app.webhooks.validate({ rawBody: body, rawRequest, rawResponse: {} })).valid;
    },
  },
  zoom: {
    sign: ({ secret, body, at_s }) => ({
      'x-zm-request-timestamp': `${at_s}`,
      'x-zm-signature': `v0=${hmac(secret, `v0:${at_s}:${body}`)}`,
    }),
    verify: async ({ secret, body, headers }) => {
      const receive = new (zoom())({ webhooksSecretToken: secret }).start();
      return (await receive({ body, headers, isBase64Encoded: false }, {})).statusCode === 200;
    },
  },
  discord: {
    sign: ({ secret, body, at_s }) => ({
      'x-signature-timestamp': `${at_s}`,
      'x-signature-ed25519': crypto.sign(null, Buffer.from(`${at_s}${body}`), ed25519(secret)).toString('hex'),
    }),
    verify: ({ secret, body, headers }) => {
      const key = crypto.createPublicKey(ed25519(secret)).export({ format: 'der', type: 'spki' }).subarray(-32);
      return discord().verifyKey(
        body, headers['x-signature-ed25519'], headers['x-signature-timestamp'], key.toString('hex'));
    },
  },
  cloudevents: {
    message: ({ secret, body, id, content_type }) => {
      const { CloudEvent, HTTP } = cloudevents();
      const event = new CloudEvent({ id, source: '/test', type: 'com.example.made', data: JSON.parse(body) });
      const message = content_type.includes('cloudevents') ? HTTP.structured(event) : HTTP.binary(event);
      const text = typeof message.body === 'string' ? message.body : JSON.stringify(message.body);
      return { headers: { ...message.headers, authorization: `Bearer ${secret}` }, body: text };
    },
  },
  pagerduty: {
    sign: ({ secret, body }) => ({ 'x-pagerduty-signature': `v1=${hmac('an older key', body)},v1=${hmac(secret, body)}` }),
  },
  sentry: {
    sign: ({ secret, body, id, at_s }) => ({
      'sentry-hook-signature': hmac(secret, body),
      'sentry-hook-timestamp': `${at_s}`,
      'sentry-hook-resource': 'issue',
      'request-id': id,
    }),
  },
  grafana: {
    sign: ({ secret, body, at_s }) => ({
      'x-grafana-alerting-timestamp': `${at_s}`,
      'x-grafana-alerting-signature': hmac(secret, `${at_s}:${body}`),
    }),
  },
};

async function answer(asked) {
  const sender = senders[asked.sender];
  if (asked.op === 'verify') {
    try {
      return { verified: sender.verify ? await sender.verify(asked) : null };
    } catch (error) {
      return { verified: false, why: `${error}` };
    }
  }
  if (sender.message) return sender.message(asked);
  return { headers: { 'content-type': asked.content_type, ...(await sender.sign(asked)) }, body: asked.body };
}

for await (const line of readline.createInterface({ input: process.stdin })) {
  const answered = await answer(JSON.parse(line)).catch((error) => ({ error: `${error.stack}` }));
  process.stdout.write(`${JSON.stringify(answered)}\n`);
}
