package scripts

import (
	"testing"
	"testing/fstest"
)

// A function without parameters is inlined where a line calls it, and left out; one that returns something stays a
// function. Its comment goes with it.
func TestInline(t *testing.T) {
	const text = `local a, twice = 1, nil
-- double doubles a.
local function double() a = a * 2 end
local function add()
  if a > 1 then
    double()
  end
end
local function get() return a end -- not on a line of its own
add()
local b = get()
`
	const want = `local a, twice = 1, nil
local function get() return a end -- not on a line of its own
do
  if a > 1 then
    do
      a = a * 2
    end
  end
end
local b = get()
`
	if got := used(inline(text)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// What nothing calls is left out, with what only that calls; to declare a name or to mention it in a comment is not to
// call it.
func TestUsed(t *testing.T) {
	const text = `local refund, grant = nil, nil
local function deepest() return 1 end

-- deep is of refund, which is called grant.
local function deep() return deepest() end
function functions.refund(w) return deep() + w.algorithm.refund(w) end
function functions.open(w)
  return w -- refund
end
return functions.open(1)
`
	const want = `local refund, grant = nil, nil

function functions.open(w)
  return w -- refund
end
return functions.open(1)
`
	if got := used(text); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestText_UnknownFile(t *testing.T) {
	files := fstest.MapFS{}
	for _, name := range []string{
		"clock", "prelude", "limit", "entries", "general/windows", "general/packed", "general/decide", "general/publish_change", "general/note",
	} {
		files[name+".lua"] = &fstest.MapFile{}
	}
	if text, err := (Source{Files: files}).Text("nothing", 0); err == nil {
		t.Errorf("a script %q", text)
	}
}
