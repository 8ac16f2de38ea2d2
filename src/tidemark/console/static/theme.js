// Before anything is drawn, so that a dark page never flashes light. No module: those run later.
{
  const chosen = localStorage.getItem("tidemark.theme");
  if (chosen) document.documentElement.dataset.theme = chosen;
}
