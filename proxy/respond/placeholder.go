package respond

import (
	"encoding/json"
	"html"
	"mime"
	"strings"
)

// placeholders are what stands in an operator's text for what only the moment
// knows.
type placeholders struct{ after, limit, id string }

// in is text with its placeholders filled in, each escaped. What is filled in is
// not looked at again.
func (p placeholders) in(text string, escape func(string) string) string {
	if !strings.Contains(text, "{") {
		return text
	}
	return strings.NewReplacer("{retry_after}", escape(p.after), "{limit}", escape(p.limit), "{request_id}", escape(p.id)).Replace(text)
}

// escaping is how text is escaped within a body of this type.
func escaping(contentType string) func(string) string {
	kind, _, _ := mime.ParseMediaType(contentType)
	switch {
	case kind == "application/json" || strings.HasSuffix(kind, "+json"):
		return withinJSON
	case kind == "text/html" || kind == "text/xml" || kind == "application/xml" || strings.HasSuffix(kind, "+xml"):
		return html.EscapeString
	}
	return plain
}

func plain(s string) string { return s }

// withinJSON is s as it stands between the quotes of a JSON string.
func withinJSON(s string) string {
	quoted, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string can always be written
	}
	return string(quoted[1 : len(quoted)-1])
}
