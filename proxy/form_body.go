package proxy

import "strings"

// HasForm reports whether x has a body that some server parses as a form. Rack parses the body of a
// POST without Content-Type as one.
func (x *exchange) HasForm() bool {
	if x.in.length == 0 {
		return false
	}
	types := x.Header("Content-Type")
	for _, kind := range types {
		kind = strings.ToLower(kind)
		if strings.Contains(kind, "urlencoded") || strings.Contains(kind, "multipart") {
			return true
		}
	}
	return strings.EqualFold(x.request.Method, "POST") && strings.Join(types, "") == ""
}
