package config

// rejectForm is the response to a refused request.
type rejectForm struct {
	// Status of the response.
	Status int `yaml:"status" jsonschema:"default=429,minimum=400,maximum=599"`
	// Detail is the detail of the problem, a sentence. {retry_after} is replaced by the seconds, {limit} by the name of the limit, {request_id} by the id of the request.
	Detail string `yaml:"detail" jsonschema:"default=Too many requests. Try again in {retry_after} s."`
	// Additional headers of the response, with the same placeholders and {origin}: the origin of the page that sent the request, without which the header is left out.
	Headers map[string]*string `yaml:"headers,omitempty"`
	// Body replaces the problem document (RFC 9457); it has the same placeholders.
	Body string `yaml:"body,omitempty"`
	// ContentType of the body; text/plain in UTF-8 when not given. The values of placeholders are escaped for JSON and HTML.
	ContentType string `yaml:"content_type,omitempty"`
}

// errorForm is what Weir answers with the status of an error.
type errorForm struct {
	// Detail is the detail of the problem, a sentence. {request_id} is replaced by the id of the request, {status} by the status, {retry_after} by the seconds of Retry-After, or 0.
	Detail string `yaml:"detail,omitempty"`
	// Additional headers of the response, with the same placeholders and {origin}: the origin of the page that sent the request, without which the header is left out.
	Headers map[string]*string `yaml:"headers,omitempty"`
	// Body replaces the problem document (RFC 9457); it has the same placeholders.
	Body string `yaml:"body,omitempty"`
	// ContentType of the body; text/plain in UTF-8 when not given. The values of placeholders are escaped for JSON and HTML.
	ContentType string `yaml:"content_type,omitempty"`
}

// Numbered lets a status stand without quotes.
func (*errorForm) Numbered() {}
