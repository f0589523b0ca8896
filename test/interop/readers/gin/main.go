// A reader in Go: net/http by itself, or gin.
//
//	readers PORT http|gin
package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/gin-gonic/gin"
)

// An answer is all that was read, by its place.
type answer map[string]any

// posts and gets are the routes by method; any has them all.
func posts() []string { return []string{"header", "form", "json", "cookie", "told", "mark", "pay"} }
func gets() []string  { return []string{"query", "token", "cost"} }

func main() {
	var h http.Handler = plain()
	if os.Args[2] == "gin" {
		h = framed()
	}
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Args[1], h))
}

func plain() http.Handler {
	mux := http.NewServeMux()
	add := func(pattern, route string) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			a := common(route, r)
			a["path"] = given(r.PathValue("phone"))
			a["query"] = r.URL.Query()["phone_no"]
			a["cost"] = r.URL.Query()["cost_no"]
			var cookies []string
			for _, c := range r.CookiesNamed("phone_no") {
				cookies = append(cookies, c.Value)
			}
			a["cookie"] = cookies
			if route == "json" {
				var body struct {
					Phone any `json:"phone_no"`
				}
				if err := json.NewDecoder(r.Body).Decode(&body); err == nil {
					a["json"] = texts(body.Phone)
				}
			} else {
				_ = r.ParseMultipartForm(1 << 20) // what could be read so far is kept
				a["form"], a["params"] = r.PostForm["phone_no"], r.Form["phone_no"]
				if r.MultipartForm != nil {
					a["form"] = append(r.MultipartForm.Value["phone_no"], r.PostForm["phone_no"]...)
				}
			}
			a.send(w)
		})
	}
	for _, route := range posts() {
		add("POST /v1/"+route, route)
	}
	for _, route := range gets() {
		add("GET /v1/"+route, route)
	}
	add("GET /v1/users/{phone}", "users")
	add("/v1/any", "any")
	add("/", "other")
	return mux
}

func framed() http.Handler {
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	read := func(route string) gin.HandlerFunc {
		return func(c *gin.Context) {
			a := common(route, c.Request)
			a["path"] = given(c.Param("phone"))
			a["query"] = c.QueryArray("phone_no")
			a["cost"] = c.QueryArray("cost_no")
			if cookie, err := c.Cookie("phone_no"); err == nil {
				a["cookie"] = given(cookie)
			}
			if route == "json" {
				var body struct {
					Phone any `json:"phone_no"`
				}
				if err := c.ShouldBindJSON(&body); err == nil {
					a["json"] = texts(body.Phone)
				}
			} else {
				form := c.PostFormArray("phone_no")
				for _, v := range c.PostFormMap("phone_no") {
					form = append(form, v)
				}
				a["form"] = form
			}
			a.send(c.Writer)
		}
	}
	for _, route := range posts() {
		engine.POST("/v1/"+route, read(route))
	}
	for _, route := range gets() {
		engine.GET("/v1/"+route, read(route))
	}
	engine.GET("/v1/users/:phone", read("users"))
	engine.Any("/v1/any", read("any"))
	engine.NoRoute(read("other"))
	return engine
}

// common is what both read in one way.
func common(route string, r *http.Request) answer {
	a := answer{
		"route": route, "method": []string{r.Method}, "host": given(r.Host),
		"header": r.Header.Values("X-Phone"), "told": r.Header.Values("X-Phone-E164"),
		"counted":       r.Header.Values("X-Counted"),
		"authorization": r.Header.Values("Authorization"), "mark": r.Header.Values("Idempotency-Key"),
	}
	var forwarded []string
	for _, name := range []string{"For", "Host", "Proto"} {
		forwarded = append(forwarded, r.Header.Values("X-Forwarded-"+name)...)
	}
	a["forwarded"] = forwarded
	return a
}

func given(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

// texts are all that a program could take a value for.
func texts(v any) []string {
	var all []string
	switch v := v.(type) {
	case nil:
	case []any:
		for _, e := range v {
			all = append(all, texts(e)...)
		}
	case map[string]any:
		for _, e := range v {
			all = append(all, texts(e)...)
		}
	case float64:
		all = []string{fmt.Sprintf("%.0f", v)}
	default:
		all = []string{fmt.Sprint(v)}
	}
	return all
}

func (a answer) send(w http.ResponseWriter) {
	for name, value := range a {
		if all, ok := value.([]string); ok {
			for i := range all {
				all[i] = told(all[i])
			}
			a[name] = all
		}
	}
	text, _ := json.Marshal(a)
	w.Header().Set("X-Read", base64.StdEncoding.EncodeToString(text))
	_, _ = io.WriteString(w, "read\n")
}

// told is a text in UTF-8; bytes that are none are told as U+E000 and more.
func told(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	var b strings.Builder
	for i := range len(text) {
		if text[i] < utf8.RuneSelf {
			b.WriteByte(text[i])
			continue
		}
		b.WriteRune(0xe000 + rune(text[i]))
	}
	return b.String()
}
