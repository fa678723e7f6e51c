// For `textevolve view`, which ends when no page holds a stream open any more. It is loaded before
// the page is whole, so that a long one counts from its beginning.
"use strict";
new EventSource("/tab");
