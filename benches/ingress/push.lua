-- GitHub pushes, each another one: 7 KB of JSON, signed as GitHub signs (libcrypto, so that signing costs the measured
-- machine next to nothing). Arguments: the secret, and what makes this run's pushes new.
local ffi = require("ffi")
ffi.cdef[[
unsigned char *HMAC(const void *md, const void *key, int key_len, const unsigned char *d, size_t n,
                    unsigned char *out, unsigned int *out_len);
const void *EVP_sha256(void);
]]
local crypto = ffi.load("libcrypto.so.3")
local out, length = ffi.new("unsigned char[32]"), ffi.new("unsigned int[1]")
local thread_count = 0

function setup(thread)
  thread:set("thread_id", thread_count)
  thread_count = thread_count + 1
  threads = threads or {}
  table.insert(threads, thread)
end

local secret, run
local before, after
local count = 0
statuses = ""
local seen = {}

function init(args)
  secret, run = args[1], args[2]
  local commit = '{"id":"%s","message":"Make it right, then make it fast","added":["src/a.rs"],"modified":["src/b.rs"],'
    .. '"author":{"name":"Mona","email":"mona@example.com","username":"mona"},"timestamp":"2026-11-30T10:00:00Z"}'
  local commits = {}
  for n = 1, 29 do commits[n] = commit:format(("%040d"):format(n)) end
  before = '{"ref":"refs/heads/main","after":"'
  after = '","repository":{"id":186853002,"full_name":"mona/midwatch"},"pusher":{"name":"mona"},"commits":['
    .. table.concat(commits, ",") .. ']}'
end

local hex = {}
for n = 0, 255 do hex[n] = ("%02x"):format(n) end

function request()
  count = count + 1
  local id = ("%s-%d-%d"):format(run, thread_id, count)
  local body = before .. id .. after
  crypto.HMAC(crypto.EVP_sha256(), secret, #secret, body, #body, out, length)
  local digits = {}
  for n = 0, 31 do digits[n + 1] = hex[out[n]] end
  return "POST " .. wrk.path .. " HTTP/1.1\r\nHost: " .. wrk.host .. "\r\nUser-Agent: GitHub-Hookshot/044aadd\r\n"
    .. "Content-Type: application/json\r\nX-GitHub-Event: push\r\nX-GitHub-Delivery: " .. id
    .. "\r\nX-Hub-Signature-256: sha256=" .. table.concat(digits) .. "\r\nContent-Length: " .. #body .. "\r\n\r\n" .. body
end

function response(status)
  seen[status] = (seen[status] or 0) + 1
  local words = {}
  for code, times in pairs(seen) do words[#words + 1] = code .. "=" .. times end
  statuses = table.concat(words, " ")
end

function done(summary, latency)
  local all = {}
  for _, thread in ipairs(threads) do
    for code, times in thread:get("statuses"):gmatch("(%d+)=(%d+)") do
      all[code] = (all[code] or 0) + tonumber(times)
    end
  end
  local words = {}
  for code, times in pairs(all) do words[#words + 1] = ('"%s":%d'):format(code, times) end
  local errors = summary.errors
  io.write(('RESULT {"statuses":{%s},"duration_us":%d,"p50_us":%d,"p99_us":%d,"max_us":%d,"broken":%d}\n'):format(
    table.concat(words, ","), summary.duration, latency:percentile(50), latency:percentile(99), latency.max,
    errors.connect + errors.read + errors.write + errors.timeout))
end
