package convert

import "regexp"

// leftovers lists the directives that nothing has marked.
func (c *nginxConfig) leftovers(block []*directive) {
	for _, d := range block {
		if d.used {
			c.leftovers(d.block)
			continue
		}
		what, instead := d.name, nginxHint(d.name)
		switch {
		case d.name == "include" && fragment.MatchString(d.arg(0)):
			what, instead = d.String(), unneeded
		case d.name == "include":
			what, instead = d.String(), "convert the output of nginx -T, which has all files"
		case instead == "":
			what, instead = d.String(), "see what each does, and write it in Weir or leave it out"
		case len(d.String()) < 60:
			what = d.String()
		}
		if d.block != nil {
			what += " { ... }"
		}
		c.leave(d.line, what, instead)
	}
}

// fragment matches files that come with nginx and have nothing for Weir.
var fragment = regexp.MustCompile(`(?:^|/)mime\.types$|_params$|modules-enabled`)

// unneeded says that a directive needs no other one in Weir.
const unneeded = "leave it out: Weir needs none of it"

// nginxHint says what to do about a directive of nginx's own modules that is not carried over; ""
// for one of another module.
func nginxHint(name string) string {
	for _, h := range nginxHints() {
		if h.names.MatchString(name) {
			return h.instead
		}
	}
	return ""
}

// An nginxHintOf says what to do about directives.
type nginxHintOf struct {
	names   *regexp.Regexp
	instead string
}

func nginxHints() []nginxHintOf {
	return []nginxHintOf{
		{hintListen, `write listen: {http: ":80", https: ":443", tls: {cert, key}, timeouts}`},
		{hintLimit, "use limit_req and limit_conn where requests are to be limited; Weir does not limit bandwidth"},
		{hintAccess, "it protects no route that is written"},
		{hintLog, "write access_log: {format, file}"},
		{hintUpstream, "write balance, health, retries, max_connections or tls in the upstream if requests need it"},
		{hintHeader,
			"Weir passes on fields, and sets X-Forwarded-For, -Proto and -Host and X-Real-IP; " +
				"write rewrite: {headers, response_headers} for others"},
		{hintPath, "write a route with rewrite, redirect or respond, or leave it to the upstream"},
		{hintChoice, "write a route with match: {headers, query or methods} for these requests"},
		{hintCache, "Weir does not cache, compress or change bodies; keep nginx behind Weir for it, or leave it out"},
		{hintContent, "Weir only forwards: let nginx, or a server that does it, listen behind Weir"},
		{hintOther, "Weir forwards HTTP only"},
		{hintUnneeded, unneeded},
	}
}

var (
	hintListen = regexp.MustCompile(`^(listen|server_name|ssl_\w+|http2\w*|http3\w*|quic_\w+|keepalive_(time|timeout|requests|disable|` +
		`min_timeout)|send_timeout|client_(header|body)_timeout|lingering_\w+|set_real_ip_from|` +
		`real_ip_\w+)$`)
	hintLimit  = regexp.MustCompile(`^(limit_(req|conn)\w*|limit_rate\w*|proxy_limit_rate|client_max_body_size|max_headers)$`)
	hintAccess = regexp.MustCompile(`^(auth_\w+_user_file|auth_basic|auth_request|auth_request_set|auth_jwt|auth_jwt_\w+|auth_delay|` +
		`satisfy|allow|deny|limit_except|internal|secure_link\w*|valid_referers|referer_\w+|dav_\w+)$`)
	hintLog      = regexp.MustCompile(`^(access_log|error_log|log_\w+|open_log_file_cache|rewrite_log|uninitialized_variable_warn)$`)
	hintUpstream = regexp.MustCompile(`^((proxy|grpc)_(next_upstream\w*|ssl_\w+|bind|connect_timeout|read_timeout|send_timeout|` +
		`socket_\w+)|upstream|hash|random|least_conn|ip_hash|least_time|sticky|keepalive|zone|state|queue|` +
		`health_check|ntlm|resolver|resolver_timeout)$`)
	hintHeader = regexp.MustCompile(`^((proxy|grpc)_(set|hide|pass)_header|(proxy|grpc)_(ignore_headers|pass_request_headers|` +
		`pass_trailers)|add_(header|trailer)\w*|expires|etag|if_modified_since|server_tokens|early_hints|` +
		`userid\w*|proxy_cookie_\w+)$`)
	hintPath = regexp.MustCompile(`^(rewrite|return|break|location|proxy_(redirect|method|set_body|pass_request_body|` +
		`intercept_errors|pass)|grpc_(pass|intercept_errors)|error_page|recursive_error_pages|try_files|` +
		`post_action|merge_slashes|\w+_in_redirect|absolute_redirect)$`)
	hintChoice = regexp.MustCompile(`^(if|set|map|geo|split_clients|geoip_\w+|(modern|ancient)_browser\w*)$`)
	hintCache  = regexp.MustCompile(`^(proxy_(cache\w*|no_cache|store\w*|force_ranges)|gzip\w*|gunzip\w*|brotli\w*|sub_filter\w*|` +
		`add_(before|after)_body|addition_types|charset\w*|(source|override)_charset|mirror\w*|slice|` +
		`ssi\w*|xslt_\w+|xml_\w+|image_filter\w*|postpone_gzipping)$`)
	hintContent = regexp.MustCompile(`^(root|alias|index|autoindex\w*|random_index|empty_gif|stub_status|(fastcgi|uwsgi|scgi|memcached|` +
		`perl|tunnel)(_\w+)?|flv|mp4\w*|dav_methods|create_full_put_path|min_delete_depth|` +
		`open_file_cache\w*|disable_symlinks|directio\w*|degrad\w+)$`)
	hintOther    = regexp.MustCompile(`^(stream|mail)$`)
	hintUnneeded = regexp.MustCompile(`^(user|worker_\w+|daemon|master_process|timer_resolution|pid|lock_file|debug_points|` +
		`working_directory|env|load_module|pcre_jit|thread_pool|events|` +
		`server|types|types_\w+|default_type|sendfile\w*|tcp_\w+|aio\w*|\w+_hash_(max|bucket)_size|` +
		`\w+_pool_size|(proxy|grpc|client)_(buffer\w*|buffers|busy_buffers_size|request_buffering|` +
		`http_version|temp_\w+|max_temp_\w+|send_lowat|headers_hash_\w+|` +
		`ignore_client_abort|header_buffer_size|body_\w+)|large_client_header_buffers|` +
		`ignore_invalid_headers|underscores_in_headers|subrequest_\w+|read_ahead|send_lowat|` +
		`postpone_output|reset_timedout_connection|msie_\w+|max_ranges|` +
		`chunked_transfer_encoding|output_buffers|variables_\w+|gzip_no_buffer)$`)
)
