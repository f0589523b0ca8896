-- decide_claim decides one claim, whose window is open.
local function decide_claim()
  if fast and cost <= left then
    allowed = 1
    take()
  end
  if fast and cost > left then
    wait()
  end
end
