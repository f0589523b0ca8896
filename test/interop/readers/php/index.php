<?php
// Plain PHP with the routing of its frameworks: the decoded path without a closing
// slash, the method in upper case, HEAD as GET.

// texts are all that a program could take a value for.
function texts($value): array {
    if ($value === null) return [];
    if (is_array($value)) return array_merge([], ...array_map('texts', array_values($value)));
    if (is_bool($value)) return [$value ? 'true' : 'false'];
    $value = (string) $value;
    if (preg_match('//u', $value)) return [$value];
    // Bytes that are no UTF-8 are told as U+E000 and more.
    return [preg_replace_callback('/[\x80-\xff]/', fn($m) => "\xee" . chr(0x80 | ord($m[0]) >> 6) . chr(0x80 | ord($m[0]) & 0x3f), $value)];
}

$path = rawurldecode(parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH) ?: '/');
$path = $path === '/' ? $path : rtrim($path, '/');
$method = strtoupper($_SERVER['REQUEST_METHOD']);
if ($method === 'HEAD') $method = 'GET';
$route = 'other';
$phone = null;
if (preg_match('~^/v1/(header|form|json|cookie|told|mark|pay)$~D', $path, $found) && $method === 'POST'
    || preg_match('~^/v1/(query|token|cost)$~D', $path, $found) && $method === 'GET'
    || preg_match('~^/v1/(any)$~D', $path, $found)) {
    $route = $found[1];
} elseif (preg_match('~^/v1/users/([^/]+)$~D', $path, $found) && $method === 'GET') {
    $route = 'users';
    $phone = $found[1];
}
$body = json_decode(file_get_contents('php://input'), true);
$answer = [
    'route' => $route,
    'method' => [$_SERVER['REQUEST_METHOD']],
    'host' => texts($_SERVER['HTTP_HOST'] ?? null),
    'path' => texts($phone),
    'header' => texts($_SERVER['HTTP_X_PHONE'] ?? null),
    'query' => texts($_GET['phone_no'] ?? null),
    'form' => texts($_POST['phone_no'] ?? null),
    'params' => texts($_REQUEST['phone_no'] ?? null),
    'json' => is_array($body) ? texts($body['phone_no'] ?? null) : [],
    'cookie' => texts($_COOKIE['phone_no'] ?? null),
    'told' => texts($_SERVER['HTTP_X_PHONE_E164'] ?? null),
    'counted' => texts($_SERVER['HTTP_X_COUNTED'] ?? null),
    'authorization' => texts($_SERVER['HTTP_AUTHORIZATION'] ?? null),
    'mark' => texts($_SERVER['HTTP_IDEMPOTENCY_KEY'] ?? null),
    'cost' => texts($_GET['cost_no'] ?? null),
    'forwarded' => array_merge(...array_map(fn($n) => texts($_SERVER['HTTP_X_FORWARDED_' . $n] ?? null), ['FOR', 'HOST', 'PROTO'])),
];
header('X-Read: ' . base64_encode(json_encode($answer, JSON_INVALID_UTF8_SUBSTITUTE)));
echo "read\n";
