"""guidellm: a benchmark of chats and of completions, whose counts of tokens are the server's own."""

import json
import os
import subprocess
import sys
from pathlib import Path

SMOLLM2_URL, _, TOKENIZER = sys.argv[1:4]
NUM_REQUESTS, INPUT_TOKENS, OUTPUT_TOKENS = 6, 32, 8


def benchmark(request_format: str) -> None:
    report = Path(os.environ["HF_HOME"], "report.json")
    options = {
        "--backend": f"kind=openai_http,target={SMOLLM2_URL},model=smollm2,request_format={request_format}",
        "--profile": "kind=concurrent,streams=2",
        "--constraint": f"kind=max_requests,count={NUM_REQUESTS}",
        "--tokenizer": f"kind=hf_auto,model={TOKENIZER}",
        "--data": f"kind=synthetic_text,prompt_tokens={INPUT_TOKENS},output_tokens={OUTPUT_TOKENS}",
        "--output": f"kind=json,path={report}",
    }
    program = Path(sys.executable).with_name("guidellm")
    subprocess.run([program, "run", "--disable-console", *(word for option in options.items() for word in option)], check=True)
    (result,) = json.loads(report.read_text(encoding="utf-8"))["benchmarks"]
    assert result["metrics"]["request_totals"] == {"successful": NUM_REQUESTS, "errored": 0, "incomplete": 0, "total": NUM_REQUESTS}
    for request in result["requests"]["successful"]:
        assert request["output_metrics"]["text_tokens"] == OUTPUT_TOKENS, request
        assert request["input_metrics"]["text_tokens"] >= INPUT_TOKENS and request["output"], request
        assert request["info"]["timings"]["token_iterations"] > 1, request


benchmark("/v1/chat/completions")
benchmark("/v1/completions")
