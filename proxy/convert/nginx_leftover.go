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

// nginxHint says what to do about a directive that is not carried over; "" for one that needs a look.
func nginxHint(name string) string {
	switch {
	case hintAccess.MatchString(name):
		return "it protects no route that is written"
	case hintHeader.MatchString(name):
		return "Weir passes on fields, and sets X-Forwarded-For, -Proto and -Host and X-Real-IP; " +
			"write rewrite: {headers, response_headers} for others"
	case hintContent.MatchString(name):
		return "Weir only forwards: let nginx, or a server that does it, listen behind Weir"
	case hintUnneeded.MatchString(name):
		return unneeded
	}
	return ""
}

var (
	hintAccess  = regexp.MustCompile(`^(auth_(basic|jwt|request|delay)\w*|satisfy|allow|deny|limit_except|internal|secure_link\w*)$`)
	hintHeader  = regexp.MustCompile(`^((proxy|grpc)_(set|hide|pass)_header|add_(header|trailer)\w*|proxy_cookie_\w+|expires|etag)$`)
	hintContent = regexp.MustCompile(`^(root|alias|index|try_files|(fastcgi|uwsgi|scgi|memcached|perl|mirror|sub_filter|charset|` +
		`ssi|proxy_(cache|store))(_\w+)?|(gzip|gunzip|brotli|autoindex|open_file_cache)\w*|stream|mail)$`)
	hintUnneeded = regexp.MustCompile(`^(user|pid|daemon|events|env|load_module|server|types|default_type|(worker|tcp|types|variables|` +
		`msie|subrequest)_\w+|(sendfile|aio)\w*|\w+_(hash_(max|bucket)|pool)_size|(proxy|grpc|client)_(\w*buffer\w*|\w*temp_\w+|` +
		`http_version)|large_client_header_buffers)$`)
)
