package proxy

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// errMalformed reports that a request is not valid HTTP.
var errMalformed = errors.New("malformed request")

// checkHTTP2 finds errors that net/http accepts in HTTP/2, and that would change the message in
// HTTP/1 (RFC 9113 sections 8.1.1, 8.2.1 and 8.3.1). net/http has checked HTTP/1 requests itself.
func checkHTTP2(r *http.Request) error {
	if r.ProtoMajor != 2 {
		return nil
	}
	if !httpguts.ValidHeaderFieldName(r.Method) {
		return fmt.Errorf("%w: the method is not a token", errMalformed)
	}
	if strings.ContainsFunc(r.RequestURI, func(c rune) bool { return c <= ' ' || c >= 0x7f }) {
		return fmt.Errorf("%w: whitespace, a control character or a non-ASCII character in the path", errMalformed)
	}
	if r.Method != http.MethodConnect && r.RequestURI != "*" && !strings.HasPrefix(r.RequestURI, "/") {
		return fmt.Errorf("%w: the path does not begin with a slash", errMalformed)
	}
	for name, values := range r.Header {
		for _, v := range values {
			if v != strings.Trim(v, " \t") {
				return fmt.Errorf("%w: whitespace around the value of %s", errMalformed, name)
			}
		}
	}
	for i, v := range r.Header["Content-Length"] {
		if strings.Trim(v, "0123456789") != "" || v == "" {
			return fmt.Errorf("%w: Content-Length is not a number", errMalformed)
		}
		if i > 0 && v != r.Header["Content-Length"][0] {
			return fmt.Errorf("%w: Content-Length is given twice", errMalformed)
		}
	}
	for _, v := range r.Header["Host"] {
		if !strings.EqualFold(v, r.Host) {
			return fmt.Errorf("%w: Host differs from :authority", errMalformed)
		}
	}
	return nil
}
